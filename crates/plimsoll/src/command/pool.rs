//! `plimsoll pool`: replay of recorded allocations under several allocator policies, and advice. It needs no
//! GPU.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_pool::generate::GenerateError;
use plimsoll_pool::trace::{CsvError, TraceRecordError};

use crate::report::ExitStatus;

mod advise;
mod generate;
mod replay;
mod run;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Replay a trace over allocator policies: the reserve of each, and the smallest budget with which it
    /// completes
    Replay(replay::Arguments),
    /// Generate the trace of an engine's run-time pool while a prompt grows
    Gen(generate::Arguments),
    /// Show the size of an engine's run-time pool, its causes, and flags that make it smaller
    Advise(advise::Arguments),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read `{path}`: {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error("`{path}` is larger than 1 GiB\nhint: record less, or cut the log after a line")]
    TooLarge { path: PathBuf },
    #[error("`{path}`: {error}")]
    Csv { path: PathBuf, error: CsvError },
    #[error("`{path}`: {error}")]
    Record { path: PathBuf, error: TraceRecordError },
    #[error("cannot generate the trace: {0}")]
    Generate(#[from] GenerateError),
    #[error("cannot write `{path}`: {error}")]
    Write { path: PathBuf, error: io::Error },
    #[error("cannot write to stdout: {0}")]
    Print(#[from] io::Error),
    #[error("cannot write as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl ExitStatus for Error {
    fn is_input(&self) -> bool {
        match self {
            // Faults of the trace or of the described run are input (status 2); failed writes are not (status
            // 1).
            Self::Read { .. }
            | Self::TooLarge { .. }
            | Self::Csv { .. }
            | Self::Record { .. }
            | Self::Generate(_) => true,
            Self::Write { .. } | Self::Print(_) | Self::Json(_) => false,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    match &arguments.verb {
        Verb::Replay(arguments) => replay::run(arguments),
        Verb::Gen(arguments) => generate::run(arguments),
        Verb::Advise(arguments) => advise::run(arguments),
    }
}
