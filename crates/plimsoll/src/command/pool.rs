//! `plimsoll pool`: replay of allocation traces under several allocator policies, and advice on an engine's
//! memory pool.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::report::ErrorReport;

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
    /// Replay a trace with several allocator policies, and print how much memory each reserves and the
    /// smallest budget with which it completes
    Replay(replay::Arguments),
    /// Generate the trace of an engine's run-time pool while a prompt grows
    Gen(generate::Arguments),
    /// Show the size of an engine's run-time pool, its causes, and flags that make it smaller
    Advise(advise::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    match &arguments.verb {
        Verb::Replay(arguments) => replay::run(arguments),
        Verb::Gen(arguments) => generate::run(arguments),
        Verb::Advise(arguments) => advise::run(arguments),
    }
}
