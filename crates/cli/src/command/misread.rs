//! Reports a command line that cannot be parsed, or prints its help, as text or as JSON.

use std::process::ExitCode;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

use super::{Cli, spelled};
use crate::report::print_error_as_json;
use crate::terminal;

/// True where stdout is to hold one JSON document, so that a failure is one too.
pub(super) fn wants_json() -> bool {
    let mut words = std::env::args_os().skip(1);
    // The words behind `run` are those of a program.
    words.next().is_some_and(|verb| verb != "run")
        && words.take_while(|word| word != "--").any(|word| word == "--json" || word == "--json=-")
}

/// The usage of the verb on the command line, down to the last of its words.
fn usage() -> Option<StyledStr> {
    let mut program = Cli::command();
    program.build();
    let mut words = spelled(std::env::args_os()).skip(1);
    let mut command = program.find_subcommand(words.next()?)?;
    while let Some(below) = words.next().and_then(|word| command.find_subcommand(word)) {
        command = below;
    }
    Some(command.clone().render_usage())
}

/// Prints help, or a wrong command line in the words of every other failure.
pub(super) fn misread(mut error: clap::Error) -> ExitCode {
    // clap's own line names each option that was given, also by a variable, as if it had to be.
    if error.get(ContextKind::Usage).is_some()
        && let Some(usage) = usage()
    {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    if error.use_stderr() && wants_json() {
        let text = error.render().to_string();
        let text = terminal::with_words_shown(&text);
        // clap has the fault first, then tips, and last the usage.
        let (fault, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let tip = rest.lines().find_map(|line| line.trim().strip_prefix("tip: "));
        print_error_as_json(2, fault.trim_start_matches("error: "), tip, &[]);
    }
    let text = error.render();
    let ours = |text: String| if error.use_stderr() { text.replacen("error:", "plimsoll:", 1) } else { text };
    // A failed write has no reader.
    let _ = terminal::of_clap(&ours(text.to_string()), &ours(text.ansi().to_string()), error.use_stderr());
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}
