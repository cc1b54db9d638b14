//! `plimsoll measure`: measures the size of CUDA contexts, tests servers under load, and records memory over
//! time.

mod calibrate;
mod server;
mod soak;
mod sweep;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand;
use plimsoll_planner::{EngineBuild, Plan};
use plimsoll_verb::report::ErrorReport;

/// Verbs that stood alone before `measure`; they still do, for one release.
const FORMER: [&str; 4] = ["calibrate", "soak", "sweep", "watch"];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure the CUDA context of this machine's cards, for later plans
    #[command(after_help = "Example: plimsoll measure calibrate --engine /opt/llama.cpp/llama-server\n\n\
            Exit status: 0 if every kind of card was measured, 1 if one was not, 2 if there is nothing \
            to measure.")]
    Calibrate(calibrate::Arguments),
    /// Put load on a server and look for memory leaks
    #[command(after_help = "Example: plimsoll measure soak 127.0.0.1:8080 --for 30m --html soak.html\n\n\
            Exit status: 0 if no leak was found, 1 if there is a leak or the load ended early, 2 for \
            bad input, 3 if too little was seen for a verdict.")]
    Soak(Box<soak::Arguments>),
    /// Measure a server's memory and speed over prompt depth
    #[command(
        after_help = "Example: plimsoll measure sweep 127.0.0.1:8080 --depths 1k,8k,32k --svg sweep.svg\n\n\
            Exit status: 0 if every depth was answered, 1 if one was not, 2 for bad input, 3 if the model \
            was stopped meanwhile."
    )]
    Sweep(sweep::Arguments),
    /// Record the memory of a program or of this machine
    #[command(after_help = "Examples:\n\
            \x20 plimsoll measure watch -o run.watch -- llama-server -m model.gguf\n\
            \x20 plimsoll measure watch show run.watch --html run.html\n\n\
            Exit status: that of the program; without a program, 0, or 1 on failure and 2 for bad input.")]
    Watch(Box<watch::Arguments>),
}

/// Plans a running llama-server from its own flags.
pub type PlanOfProcess = fn(u32, EngineBuild) -> Result<Plan, ErrorReport>;

pub fn run(arguments: &Arguments, plan_of: PlanOfProcess) -> Result<ExitCode, ErrorReport> {
    match &arguments.verb {
        Verb::Calibrate(arguments) => calibrate::run(arguments),
        Verb::Soak(arguments) => soak::run(arguments),
        Verb::Sweep(arguments) => sweep::run(arguments, plan_of),
        Verb::Watch(arguments) => watch::run(arguments),
    }
}

/// The command line with `measure` in front of a verb that had its name alone.
pub fn spelled(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut words = words.peekable();
    let program = words.next();
    let is_former = words.peek().is_some_and(|verb| FORMER.iter().any(|former| verb == *former));
    program.into_iter().chain(is_former.then(|| "measure".into())).chain(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_name_is_read_as_the_verb_below_measure() {
        for (given, read) in [
            ("plimsoll soak --help", "plimsoll measure soak --help"),
            ("plimsoll watch show a.watch", "plimsoll measure watch show a.watch"),
            ("plimsoll measure watch", "plimsoll measure watch"),
            ("plimsoll status --watch", "plimsoll status --watch"),
            ("plimsoll run -- soak", "plimsoll run -- soak"),
            ("plimsoll", "plimsoll"),
        ] {
            let words: Vec<OsString> = spelled(given.split(' ').map(OsString::from)).collect();
            assert_eq!(words.join(" ".as_ref()), read, "{given}");
        }
    }
}
