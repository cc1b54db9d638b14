//! Runs the subcommands of `plimsoll`, one file each. Only this module prints and sets the exit status.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plimsoll_config::LogLevel;
use plimsoll_log::{LogOptions, LogOutput};
use plimsoll_measure::spelled;
use plimsoll_verb::child::own_failure;
use plimsoll_verb::runtime;

use self::misread::{misread, wants_json};

mod bugreport;
mod card_choice;
pub(crate) mod doctor;
pub(crate) mod engine;
pub(crate) mod exec_child;
pub(crate) mod fleet;
mod greeting;
pub(crate) mod import;
mod inherited;
pub(crate) mod init;
pub(crate) mod look;
mod misread;
mod overview;
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
pub(crate) mod warden;

const STATUSES: &str = "Exit status of every command: 0 for success, 1 for a failure or the answer no, 2 \
    for bad input, 3 for no verdict. `run`, `doctor -- COMMAND` \
    and `measure watch -- COMMAND` end with the exit status of their program.";

#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about = "The load line for GPU memory", after_help = STATUSES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take a tour with two small models and a budget that holds one
    #[command(after_help = "Example: plimsoll quickstart --once\n\n\
            `plimsoll engine remove` deletes the tour's engine and models.\n\n\
            Exit status: 0 after the tour or a signal, 1 on failure.")]
    Quickstart(quickstart::Arguments),
    /// Serve several models behind one address, each in its own process
    Serve(serve::Arguments),
    /// Compute the memory of a model on each card, and whether it fits
    Plan(Box<plan::Arguments>),
    /// Write a configuration for the models in a folder
    Init(init::Arguments),
    /// Write a configuration from llama-swap, presets or Ollama's store
    Import(import::Arguments),
    /// Show a running server: its process, requests, cards and models
    Status(server_verbs::List),
    /// List the cards and models of a running server
    Ps(server_verbs::List),
    /// Watch a running server, or this machine's cards, full screen
    Top(server_verbs::Top),
    /// Load a model in a running server
    #[command(after_help = "Example: plimsoll load qwen3-4b\n\n\
            Exit status: 0, 1 if the server does not answer or refuses, 2 if it has no such model.")]
    Load(server_verbs::Load),
    /// Unload a model in a running server
    #[command(after_help = "Examples:\n\
            \x20 plimsoll unload qwen3-4b\n\
            \x20 plimsoll unload --all\n\n\
            Exit status: 0, 1 if the server does not answer or refuses, 2 if it has no such model.")]
    Unload(server_verbs::Unload),
    /// Keep a model of a running server loaded
    #[command(after_help = "Examples:\n\
            \x20 plimsoll pin qwen3-4b\n\
            \x20 plimsoll pin qwen3-4b --for 1h\n\n\
            A pinned model is not stopped for other models or for being idle. A pin ends with `plimsoll unpin`, \
            with its time or with the server. To keep a model for good, set `pin = true` in its section.\n\n\
            Exit status: 0, 1 if the server does not answer or refuses, 2 if it has no such model.")]
    Pin(server_verbs::Pin),
    /// Let a pinned model of a running server be unloaded again
    #[command(after_help = "Example: plimsoll unpin qwen3-4b\n\n\
            Exit status: 0, 1 if the server does not answer or refuses, 2 if it has no such model.")]
    Unpin(server_verbs::Unpin),
    /// Keep memory of a card free for other programs
    Yield(server_verbs::Yield),
    /// Let a running server download a model
    Download(server_verbs::Download),
    /// Make a running server read its configuration again
    #[command(after_help = "Example: plimsoll reload --url http://127.0.0.1:8080\n\n\
            Exit status: 0, or 1 if the server does not answer or refuses.")]
    Reload(server_verbs::Reload),
    /// Print the log lines of a running server's engines
    #[command(after_help = "Example: plimsoll logs -f qwen3-4b\n\n\
            Exit status: 0, 1 if the server does not answer or refuses, 2 if it has no such model.")]
    Logs(server_verbs::Logs),
    /// Stop a running server of yours after its current answers
    Stop(server_verbs::Stop),
    /// Run an unmodified GPU program within a memory budget
    // Boxed, because clippy (`large_enum_variant`) objects where one variant is far larger than the others.
    Run(Box<run::Arguments>),
    /// Pack what a bug report needs into an archive, without secrets
    Bugreport(bugreport::Arguments),
    /// Explain a failed GPU allocation (log, program or this machine)
    Doctor(doctor::Arguments),
    /// Free memory on a machine whose GPU shares the host's memory
    #[command(after_help = "Examples:\n\
            \x20 plimsoll reclaim --dry-run\n\
            \x20 plimsoll reclaim --need 5GiB --with sudo\n\n\
            Exit status: 0 if there is enough memory (with --dry-run: if there would be), 1 if there is \
            not, 2 for bad input.")]
    Reclaim(reclaim::Arguments),
    /// Measure cards, servers under load, and the memory of programs
    #[command(after_help = "Example: plimsoll measure soak 127.0.0.1:8080 --for 30m\n\n\
            Exit status: that of the subcommand, which its own help states.")]
    Measure(plimsoll_measure::Arguments),
    /// Create or try a fleet of hosts, drain hosts, and move models
    Fleet(fleet::Arguments),
    /// Install, list and remove engines
    #[command(after_help = "Examples:\n\
            \x20 plimsoll engine install\n\
            \x20 plimsoll engine list --json\n\
            \x20 plimsoll engine remove\n\n\
            Exit status: 0, or 1 if there is no engine or the installation failed.")]
    Engine(engine::Arguments),
    /// Print a script that completes commands and options in your shell
    #[command(after_help = "Examples:\n\
            \x20 plimsoll completions bash > ~/.local/share/bash-completion/completions/plimsoll\n\
            \x20 plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish\n\n\
            Exit status: 0, or 2 for another shell.")]
    Completions(reference::Completions),
    /// Write the manual pages into a folder
    #[command(after_help = "Example: plimsoll man ~/.local/share/man/man1\n\n\
            Exit status: 0, or 1 if the folder cannot be written.")]
    Man(reference::ManPages),
    #[command(hide = true)]
    Look(look::Arguments),
    #[command(hide = true)]
    ModelNames(server_verbs::Names),
    #[command(hide = true)]
    ReclaimStep(reclaim_step::Arguments),
    #[command(hide = true)]
    RaiseSignal(raise_signal::Arguments),
    #[command(hide = true)]
    Reference(reference::Arguments),
    #[command(hide = true)]
    Warden(warden::Arguments),
}

/// The verbs that a server consists of, parsed by themselves: the descriptions of all the others take a tenth
/// of its start.
#[derive(clap::Parser)]
enum OftenStarted {
    Serve(Box<serve::Arguments>),
    Look(look::Arguments),
    Warden(warden::Arguments),
}

impl OftenStarted {
    /// Returns `None` for other verbs, and for help and mistakes, which need the whole command line.
    fn read() -> Option<Self> {
        let verb = std::env::args_os().nth(1)?;
        let is_often_started = ["serve", "look", "warden"].iter().any(|often| verb == *often);
        is_often_started.then(|| Self::try_parse().ok()).flatten()
    }
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    // Every load of a model waits for this verb. It also changes its user and its mounts, for which a process
    // must have one thread, and the log has another.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == exec_child::VERB) {
        return exec_child::main(std::env::args_os().skip(2));
    }
    if std::env::args_os().len() <= 1 {
        return greeting::run().unwrap_or_else(|report| report.print(false));
    }
    let command = match OftenStarted::read() {
        Some(OftenStarted::Serve(arguments)) => Command::Serve(*arguments),
        Some(OftenStarted::Look(arguments)) => Command::Look(arguments),
        Some(OftenStarted::Warden(arguments)) => Command::Warden(arguments),
        None => match overview::read(plan::spelled(spelled(std::env::args_os()))) {
            Ok(cli) => cli.command,
            Err(error) => return misread(plan::meant(error)),
        },
    };
    // The tour reports the daemon's actions itself; the daemon's own log lines would repeat them.
    let params = match &command {
        Command::Serve(arguments) => arguments.log(),
        Command::Quickstart(_) => LogOptions { only_errors: true, is_server: true, ..LogOptions::default() },
        Command::Doctor(_) | Command::Measure(_) | Command::Reclaim(_) | Command::Run(_) => {
            LogOptions { usual: LogLevel::Warn, ..LogOptions::default() }
        }
        _ => LogOptions::default(),
    };
    if let Err(report) = inherited::prepare() {
        let report = if matches!(command, Command::Run(_)) { own_failure(report) } else { report };
        return report.print(wants_json());
    }
    // Without a thread there are no lines, and everything else still works.
    let (log, _flushed) = LogOutput::start(params).ok().unzip();
    let result = match command {
        Command::Bugreport(arguments) => bugreport::run(&arguments),
        Command::Completions(arguments) => reference::print_completions(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Download(arguments) => server_verbs::download(&arguments).map_err(server_verbs::report),
        Command::Engine(arguments) => engine::run(arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Init(arguments) => init::run(arguments, log.unwrap_or_default()),
        Command::Fleet(arguments) => fleet::run(arguments),
        Command::Load(arguments) => server_verbs::load(&arguments).map_err(server_verbs::report),
        Command::Logs(arguments) => server_verbs::logs(&arguments).map_err(server_verbs::report),
        Command::Measure(arguments) => plimsoll_measure::run(&arguments, plan::check::again),
        Command::Man(arguments) => reference::write_man(&arguments),
        Command::ModelNames(arguments) => server_verbs::names(&arguments),
        Command::Pin(arguments) => server_verbs::pin(&arguments).map_err(server_verbs::report),
        Command::Plan(arguments) => plan::run(*arguments),
        Command::Ps(arguments) => server_verbs::list(&arguments),
        Command::Quickstart(arguments) => quickstart::run(arguments, &log.unwrap_or_default()),
        Command::Reclaim(arguments) => reclaim::run(&arguments),
        Command::ReclaimStep(arguments) => reclaim_step::run(&arguments),
        Command::Reference(arguments) => reference::run(&arguments),
        Command::Reload(arguments) => server_verbs::reload(&arguments).map_err(server_verbs::report),
        Command::Run(arguments) => run::run(&arguments),
        Command::Serve(arguments) => serve::run(arguments, log.unwrap_or_default()),
        Command::Status(arguments) => server_verbs::status(&arguments),
        Command::Stop(arguments) => server_verbs::stop(&arguments).map_err(server_verbs::report),
        Command::Top(arguments) => server_verbs::top(&arguments).map_err(server_verbs::report),
        Command::Unload(arguments) => server_verbs::unload(&arguments).map_err(server_verbs::report),
        Command::Yield(arguments) => server_verbs::give_way(&arguments),
        Command::Unpin(arguments) => server_verbs::unpin(&arguments).map_err(server_verbs::report),
        Command::RaiseSignal(arguments) => return raise_signal::run(&arguments),
        Command::Look(arguments) => return look::run(&arguments),
        Command::Warden(arguments) => return warden::run(&arguments),
    };
    // Every subcommand returns its error to here, so no subcommand has an error format of its own.
    result.unwrap_or_else(|report| report.print(wants_json()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_of_every_verb_has_an_example_and_its_exit_statuses() {
        fn check(command: &mut clap::Command) {
            for verb in
                command.get_subcommands_mut().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
            {
                let help = verb.render_long_help().to_string();
                assert!(help.contains("Example") && help.contains("Exit status: "), "{help}");
                check(verb);
            }
        }
        check(&mut Cli::command());
    }
}
