//! Windows' half: no process is measured.

use plimsoll_base::Card;
use plimsoll_cards::Machine;

/// The cards that NVML knows.
pub(in crate::command) fn served(machine: &Machine) -> Vec<Card> {
    machine.cards.clone()
}

/// Which models fit together is asked of the server's own code.
pub(super) mod many {
    use std::process::ExitCode;

    use super::super::Arguments;
    use crate::command::absent;
    use crate::report::ErrorReport;

    pub(in crate::command) fn run(_: &Arguments) -> Result<ExitCode, ErrorReport> {
        Err(absent("plan MODEL MODEL"))
    }
}

pub(super) mod check {
    use std::process::ExitCode;

    use super::super::Arguments;
    use crate::command::absent;
    use crate::report::ErrorReport;

    pub(in crate::command) fn run(_: &Arguments, _: &str) -> Result<ExitCode, ErrorReport> {
        Err(absent("plan --check"))
    }
}
