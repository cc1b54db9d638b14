//! The subcommands, one file each: clap arguments in, an exit code out. Only here is anything printed.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::report::Report;

pub(crate) mod calibrate;
pub(crate) mod die_by;
pub(crate) mod doctor;
pub(crate) mod engine;
pub(crate) mod exec_child;
pub(crate) mod look;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod quickstart;
pub(crate) mod reclaim;
pub(crate) mod reclaim_step;
pub(crate) mod run;
mod rungs;
pub(crate) mod serve;
pub(crate) mod soak;
pub(crate) mod sweep;
pub(crate) mod warden;
pub(crate) mod watch;

#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about = "The load line for GPU memory")]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure once what a CUDA context takes on these cards, for every plan from then on
    Calibrate(calibrate::Arguments),
    /// Say why memory was refused: of a log, a program, a process or the machine as it is
    Doctor(doctor::Arguments),
    /// Install, list and find the programs that run models
    Engine(engine::Arguments),
    /// Say what a model will take, on which card, and whether it fits
    Plan(plan::Arguments),
    /// Replay, make and judge what programs ask of allocators of GPU memory
    Pool(pool::Arguments),
    /// See it work: two small models, a budget that holds one, and what happens when both are asked
    Quickstart(quickstart::Arguments),
    /// Make room on a machine whose GPU takes the host's memory: say what would help and by how much, then do it
    Reclaim(reclaim::Arguments),
    /// Run a program as it is, with guard in it: counted, kept to a budget, told why where it does not fit
    Run(Box<run::Arguments>),
    /// Serve several models from one memory budget, each in its own process
    Serve(serve::Arguments),
    /// Hold load on a server, and tell a leak from what is taken once
    Soak(Box<soak::Arguments>),
    /// Send prompts of growing depth, and show memory and speed over depth
    Sweep(sweep::Arguments),
    /// Write down the course of memory, of a program or of the machine, and read it back
    Watch(Box<watch::Arguments>),
    #[command(hide = true)]
    DieBy(die_by::Arguments),
    #[command(hide = true)]
    ExecChild(exec_child::Arguments),
    #[command(hide = true)]
    Look(look::Arguments),
    #[command(hide = true)]
    ReclaimStep(reclaim_step::Arguments),
    #[command(hide = true)]
    Warden(warden::Arguments),
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    let verb = Line::parse().verb;
    // The tour tells in its own words what the daemon under it does.
    talk_on_stderr(match verb {
        Verb::Calibrate(_)
        | Verb::Doctor(_)
        | Verb::Quickstart(_)
        | Verb::Reclaim(_)
        | Verb::Run(_)
        | Verb::Soak(_)
        | Verb::Sweep(_)
        | Verb::Watch(_) => "warn",
        _ => "info",
    });
    let result = match verb {
        Verb::Calibrate(arguments) => calibrate::run(&arguments).map_err(|error| match error.is_input() {
            true => Report::input(error),
            false => Report::failure(error),
        }),
        Verb::Doctor(arguments) => doctor::run(&arguments).map_err(|error| match error.is_input() {
            true => Report::input(error),
            false => Report::failure(error),
        }),
        Verb::Engine(arguments) => engine::run(arguments).map_err(Report::failure),
        Verb::Plan(arguments) => plan::run(&arguments).map_err(Report::input),
        Verb::Pool(arguments) => pool::run(&arguments).map_err(|error| match error.is_input() {
            true => Report::input(error),
            false => Report::failure(error),
        }),
        Verb::Quickstart(arguments) => quickstart::run(arguments).map_err(Report::failure),
        Verb::Reclaim(arguments) => reclaim::run(&arguments).map_err(|error| match error.is_input() {
            true => Report::input(error),
            false => Report::failure(error),
        }),
        Verb::ReclaimStep(arguments) => reclaim_step::run(&arguments).map_err(Report::failure),
        Verb::Run(arguments) => run::run(&arguments).map_err(|error| {
            let status = error.status();
            Report::with_status(error, status)
        }),
        Verb::Serve(arguments) => serve::run(arguments).map_err(|error| match error.is_input() {
            true => Report::input(error),
            false => Report::failure(error),
        }),
        Verb::Soak(arguments) => soak::run(&arguments).map_err(Report::failure),
        Verb::Sweep(arguments) => sweep::run(&arguments).map_err(Report::failure),
        Verb::Watch(arguments) => watch::run(&arguments).map_err(|error| {
            let status = error.status();
            Report::with_status(error, status)
        }),
        Verb::DieBy(arguments) => return die_by::run(&arguments),
        Verb::ExecChild(arguments) => return exec_child::run(&arguments),
        Verb::Look(arguments) => return look::run(&arguments),
        Verb::Warden(arguments) => return warden::run(&arguments),
    };
    result.unwrap_or_else(|report| report.print())
}

/// Notes of the daemon go to stderr, one line each; `RUST_LOG` chooses which.
fn talk_on_stderr(usual: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Unheard(std::io::stderr()));
    lines.without_time().with_target(false).with_ansi(false).init();
}

/// Stderr, of which it does not matter whether anybody reads it: the subscriber would panic over a closed pipe.
struct Unheard(std::io::Stderr);

impl std::io::Write for Unheard {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        Ok(self.0.write(line).unwrap_or(line.len()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}
