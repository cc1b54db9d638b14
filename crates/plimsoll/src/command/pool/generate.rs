//! `plimsoll pool gen`: generated allocation trace of an engine run, in the format of RAPIDS RMM's log.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_pool::generate::generate;

use super::run::RunArguments;
use crate::report::{ErrorReport, print, write_file};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunArguments,
    /// Write the trace into this file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let run = &arguments.run;
    // RMM's format, because other replay tools read it too.
    let text = generate(&run.model, &run.run(), &run.card);
    let text = text
        .map_err(|error| ErrorReport::input(ErrorReport::new(format!("cannot generate the trace: {error}"))))?
        .to_csv();
    match &arguments.out {
        Some(path) => write_file(path, text)?,
        None => print(text)?,
    }
    Ok(ExitCode::SUCCESS)
}
