//! Reports on Windows that `plimsoll doctor` examines only logs there, not processes or programs.

pub(super) mod process {
    use crate::command::absent;
    use crate::command::doctor::Findings;
    use crate::report::ErrorReport;

    pub(in crate::command::doctor) fn look(_: u32) -> Result<Findings, ErrorReport> {
        Err(absent("doctor --pid"))
    }
}

pub(super) mod program {
    use std::ffi::OsString;

    use crate::command::absent;
    use crate::command::doctor::Findings;
    use crate::report::ErrorReport;

    pub(in crate::command::doctor) fn watch(_: &[OsString]) -> Result<Findings, ErrorReport> {
        Err(absent("doctor -- COMMAND"))
    }
}
