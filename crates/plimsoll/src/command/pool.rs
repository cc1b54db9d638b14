//! `plimsoll pool`: replay of allocation traces under several allocator policies. It needs no GPU.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::report::ErrorReport;

mod replay;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Replay a trace with several allocator policies, and print how much memory each reserves and the
    /// smallest budget with which it completes
    Replay(replay::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    match &arguments.verb {
        Verb::Replay(arguments) => replay::run(arguments),
    }
}
