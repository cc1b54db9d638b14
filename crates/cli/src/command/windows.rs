//! Runs the subcommands of `plimsoll` on Windows: those that read files, and `run`.
//!
//! DECISION: the other verbs serve, confine and measure processes, which is another half for each. Until that
//! is written they say so, instead of half working.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plimsoll_log::{LogOptions, LogOutput};

use self::misread::{misread, wants_json};
use crate::report::ErrorReport;

mod card_choice;
pub(crate) mod doctor;
pub(crate) mod import;
mod misread;
mod overview;
pub(crate) mod plan;
#[path = "run/windows.rs"]
mod run;

#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about = "The load line for GPU memory")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compute the memory of a model on each card, and whether it fits
    Plan(Box<plan::Arguments>),
    /// Write a configuration from llama-swap, presets or Ollama's store
    Import(import::Arguments),
    /// Find out why a GPU allocation failed: in a log or here
    Doctor(doctor::Arguments),
    /// Run a program within a budget of GPU memory
    Run(run::Arguments),
    #[command(external_subcommand)]
    Absent(Vec<OsString>),
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    let command = match overview::read(plan::spelled(spelled(std::env::args_os()))) {
        Ok(cli) => cli.command,
        Err(error) => return misread(plan::meant(error)),
    };
    // Without a thread there are no lines, and everything else still works.
    let (_log, _flushed) = LogOutput::start(LogOptions::default()).ok().unzip();
    let result = match command {
        Command::Plan(arguments) => plan::run(*arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Absent(words) => {
            let verb = words.first().map(|verb| verb.to_string_lossy()).unwrap_or_default();
            Err(ErrorReport::input(absent(&verb)))
        }
    };
    result.unwrap_or_else(|report| report.print(wants_json()))
}

/// No verb has another spelling here.
fn spelled(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    words
}

/// The failure of what needs another half of the system.
fn absent(what: &str) -> ErrorReport {
    ErrorReport::new(format!(
        "`plimsoll {what}` does not work on Windows\nhint: `plan`, `doctor FILE`, `import` and `run` do"
    ))
}
