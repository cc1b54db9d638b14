//! Lists the subcommands by task, for `plimsoll --help`.

use std::ffi::OsString;
use std::fmt::Write;

use clap::builder::Styles;
use clap::{CommandFactory, FromArgMatches};

use super::Cli;

/// Headings and their verbs. `cargo xtask docs` finds the verbs below headings that begin with `Commands`.
const GROUPS: &[(&str, &[&str])] = &[
    ("Commands to begin with", &["quickstart", "serve", "plan", "init", "import"]),
    (
        "Commands for a running server",
        &[
            "status", "ps", "top", "load", "unload", "pin", "unpin", "yield", "download", "reload", "logs",
            "stop",
        ],
    ),
    ("Commands for programs and failures", &["run", "doctor", "bugreport", "reclaim", "measure"]),
    ("Commands for fleets and installation", &["fleet", "engine", "completions", "man"]),
];

/// Parses a command line. Its help lists the verbs by task, which clap itself cannot.
pub(super) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let program = Cli::command();
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}{}\n{{options}}{{after-help}}",
        verbs(&program),
        heading("Options")
    );
    let matches = program.help_template(template).try_get_matches_from(words)?;
    Cli::from_arg_matches(&matches)
}

fn verbs(program: &clap::Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let verbs: Vec<_> = names.iter().filter_map(|name| program.find_subcommand(name)).collect();
        // Not every system has verbs of each group.
        if verbs.is_empty() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", heading(title));
        for verb in verbs {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:<11}  {about}", verb.get_name());
        }
        text.push('\n');
    }
    text
}

/// A heading as clap styles its own.
fn heading(title: &str) -> String {
    let styles = Styles::styled();
    let style = styles.get_header();
    format!("{style}{title}:{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help() -> String {
        read(["plimsoll", "--help"].map(OsString::from)).unwrap_err().to_string()
    }

    #[test]
    fn every_visible_verb_is_in_one_group() {
        let program = Cli::command();
        let mut visible: Vec<&str> = program
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn the_overview_begins_with_quickstart_and_fits_80_columns() {
        let help = help();
        let first = help.split_once("Commands to begin with:\n").unwrap().1;
        assert!(first.trim_start().starts_with("quickstart"), "{help}");
        let verbs = help.split_once("\nOptions:").unwrap().0;
        assert!(verbs.lines().all(|line| line.chars().count() <= 80), "{help}");
        assert!(help.contains("Exit status of every command"), "{help}");
    }
}
