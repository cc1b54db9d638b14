//! Windows' half: no process is measured.

use plimsoll_base::Card;
use plimsoll_cards::Machine;

/// The cards that NVML knows.
pub(in crate::command) fn served(machine: &Machine) -> Vec<Card> {
    machine.cards.clone()
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
