//! The verbs of the command line, one file each. Nobody imports a command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod exec_child;
pub mod warden;

#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about = "The load line for GPU memory")]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(hide = true)]
    ExecChild(exec_child::Arguments),
    #[command(hide = true)]
    Warden(warden::Arguments),
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    match Line::parse().verb {
        Verb::ExecChild(arguments) => exec_child::run(&arguments),
        Verb::Warden(arguments) => warden::run(&arguments),
    }
}
