//! `plimsoll pool gen`: generated allocation trace of an engine run, in the format of RAPIDS RMM's log.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_pool::generate::generate;

use super::Error;
use super::run::RunArguments;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunArguments,
    /// Write the trace into this file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let run = &arguments.run;
    // RMM's format, because other replay tools read it too.
    let text = generate(&run.model, &run.run(), &run.card)?.to_csv();
    match &arguments.out {
        Some(path) => fs::write(path, text).map_err(|error| Error::Write {
            path: path.clone(),
            error,
        })?,
        None => anstream::stdout().lock().write_all(text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
