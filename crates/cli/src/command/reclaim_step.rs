//! `plimsoll reclaim-step` (hidden): runs one privileged step of `plimsoll reclaim`, under sudo or systemd.

use std::process::ExitCode;

use clap::Args;
use plimsoll_reclaim::take_as_root;

use crate::report::ErrorReport;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// compact, claim-huge-pages, drop-page-cache, write-and-drop-page-cache, drop-slab
    step: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    // The step is a fixed word, never a path or a command, so a sudoers line for it grants nothing more.
    take_as_root(&arguments.step)?;
    Ok(ExitCode::SUCCESS)
}
