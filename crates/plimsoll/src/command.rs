//! The subcommands, one file each: clap arguments in, an exit code out. Only here is anything printed.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::report::Report;

pub(crate) mod engine;
pub(crate) mod exec_child;
pub(crate) mod plan;
pub(crate) mod synth;
pub(crate) mod warden;

#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about = "The load line for GPU memory")]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Install, list and find the programs that run models
    Engine(engine::Arguments),
    /// Say what a model will take, on which card, and whether it fits
    Plan(plan::Arguments),
    /// Write a model that looks real: a header with a hole behind it, or a tiny one that runs
    Synth(synth::Arguments),
    #[command(hide = true)]
    ExecChild(exec_child::Arguments),
    #[command(hide = true)]
    Warden(warden::Arguments),
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    let result = match Line::parse().verb {
        Verb::Engine(arguments) => engine::run(arguments).map_err(Report::failure),
        Verb::Plan(arguments) => plan::run(&arguments).map_err(Report::input),
        Verb::Synth(arguments) => synth::run(&arguments).map_err(Report::failure),
        Verb::ExecChild(arguments) => return exec_child::run(&arguments),
        Verb::Warden(arguments) => return warden::run(&arguments),
    };
    result.unwrap_or_else(|report| report.print())
}
