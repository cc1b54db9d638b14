//! `plimsoll reclaim-step`: one of the steps that only root may take, and nothing else (hidden). For sudo or
//! a systemd unit.

use std::process::ExitCode;

use clap::Args;
use plimsoll_reclaim::{TakeStepError, take_as_root};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// compact, claim-huge-pages, drop-page-cache, write-and-drop-page-cache, drop-slab
    step: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, TakeStepError> {
    take_as_root(&arguments.step)?;
    Ok(ExitCode::SUCCESS)
}
