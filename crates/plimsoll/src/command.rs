//! Subcommands of `plimsoll`, one file each. Only this module prints and sets the exit status.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plimsoll_launch::{FlushStderr, StderrQueue};
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

use crate::report::ErrorReport;

pub(crate) mod calibrate;
pub(crate) mod doctor;
pub(crate) mod engine;
pub(crate) mod exec_child;
pub(crate) mod look;
pub(crate) mod plan;
pub(crate) mod quickstart;
pub(crate) mod raise_signal;
pub(crate) mod reclaim;
pub(crate) mod reclaim_step;
mod reference;
pub(crate) mod run;
mod rungs;
pub(crate) mod serve;
mod server_verbs;
pub(crate) mod soak;
pub(crate) mod sweep;
pub(crate) mod warden;
pub(crate) mod watch;

const STATUSES: &str = "Exit status of every command: 0 for success, 1 for a failure or the answer no (such \
    as a model that does not fit), 2 for bad input, 3 for no verdict. `run` and `doctor -- COMMAND` end \
    with the exit status of their program.";

#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about = "The load line for GPU memory", after_help = STATUSES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the memory of a CUDA context on this machine's cards, for later plans
    Calibrate(calibrate::Arguments),
    /// Diagnose failed allocations: in a log, a program, a process or this machine
    Doctor(doctor::Arguments),
    /// Install, list and find engines
    Engine(engine::Arguments),
    /// Load a model in a running server
    Load(server_verbs::Load),
    /// Print the log lines of the engines of a running server
    Logs(server_verbs::Logs),
    /// Compute the memory of a model on each card, and whether the model fits
    Plan(Box<plan::Arguments>),
    /// List the cards and models of a running server
    Ps(server_verbs::List),
    /// Take a tour: two small models, a budget that holds one of them, and requests to both
    Quickstart(quickstart::Arguments),
    /// Free memory on a machine whose GPU shares the host's memory
    Reclaim(reclaim::Arguments),
    /// Make a running server read its configuration again
    Reload(server_verbs::Reload),
    /// Run an unmodified CUDA program under guard, which counts its memory and enforces a budget
    // Boxed, because clippy (`large_enum_variant`) objects where one variant is far larger than the others.
    Run(Box<run::Arguments>),
    /// Serve several models behind one address, each in its own process
    Serve(serve::Arguments),
    /// Put load on a server and look for memory leaks
    Soak(Box<soak::Arguments>),
    /// Measure a server's memory and speed over prompt depth
    Sweep(sweep::Arguments),
    /// Unload a model in a running server
    Unload(server_verbs::Unload),
    /// Record the memory of a program or of this machine
    Watch(Box<watch::Arguments>),
    #[command(hide = true)]
    Look(look::Arguments),
    #[command(hide = true)]
    ReclaimStep(reclaim_step::Arguments),
    #[command(hide = true)]
    RaiseSignal(raise_signal::Arguments),
    #[command(hide = true)]
    Reference(reference::Arguments),
    #[command(hide = true)]
    Warden(warden::Arguments),
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    // Every load of a model waits for this verb. It also changes its user and its mounts, for which a process must have
    // one thread, and the log has another.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == exec_child::VERB) {
        return exec_child::run(&exec_child::Arguments::parse_from(std::env::args_os().skip(1)));
    }
    let command = Cli::parse_from(plan::spelled(std::env::args_os())).command;
    // The tour reports the daemon's actions itself; the daemon's own log lines would repeat them.
    let _flushed = log_to_stderr(match command {
        Command::Calibrate(_)
        | Command::Doctor(_)
        | Command::Quickstart(_)
        | Command::Reclaim(_)
        | Command::Run(_)
        | Command::Soak(_)
        | Command::Sweep(_)
        | Command::Watch(_) => "warn",
        _ => "info",
    });
    let result = match command {
        Command::Calibrate(arguments) => calibrate::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Engine(arguments) => engine::run(arguments),
        Command::Load(arguments) => server_verbs::load(&arguments).map_err(server_verbs::report),
        Command::Logs(arguments) => server_verbs::logs(&arguments).map_err(server_verbs::report),
        Command::Plan(arguments) => plan::run(*arguments),
        Command::Ps(arguments) => server_verbs::list(&arguments).map_err(server_verbs::report),
        Command::Quickstart(arguments) => quickstart::run(arguments),
        Command::Reclaim(arguments) => reclaim::run(&arguments),
        Command::ReclaimStep(arguments) => reclaim_step::run(&arguments),
        Command::Reference(arguments) => reference::run(&arguments),
        Command::Reload(arguments) => server_verbs::reload(&arguments).map_err(server_verbs::report),
        Command::Run(arguments) => run::run(&arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Unload(arguments) => server_verbs::unload(&arguments).map_err(server_verbs::report),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::RaiseSignal(arguments) => return raise_signal::run(&arguments),
        Command::Look(arguments) => return look::run(&arguments),
        Command::Warden(arguments) => return warden::run(&arguments),
    };
    // Every subcommand returns its error to here, so no subcommand has an error format of its own.
    result.unwrap_or_else(|report| report.print())
}

/// The run-time of a subcommand that is a client or waits for a program.
fn runtime() -> Result<Runtime, ErrorReport> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(ErrorReport::of("cannot start"))
}

/// Sends log lines to stderr; `RUST_LOG` selects them. They are written when the result is dropped.
fn log_to_stderr(usual: &str) -> Option<FlushStderr> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    // Without a thread there are no lines, and everything else still works.
    let (queue, flush) = StderrQueue::start(std::io::stderr()).ok()?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || queue.clone());
    // journald and container runtimes add the time; plain lines can be searched in a log file.
    lines.without_time().with_target(false).with_ansi(false).init();
    Some(flush)
}
