//! `plimsoll reference`: man pages, completions and the schema of the configuration (hidden command).
//!
//! `cargo xtask docs` writes them into `docs/reference`; CI fails if they are out of date.

use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::Cli;
use crate::report::{ErrorReport, print};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// ReferenceDocument to print
    document: ReferenceDocument,
    /// Shell of the completions, or subcommand of the man page
    name: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReferenceDocument {
    Man,
    Completions,
    Schema,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let name = arguments.name.as_deref().unwrap_or_default();
    let document = match arguments.document {
        ReferenceDocument::Man => man(name)?,
        ReferenceDocument::Completions => completions(name)?,
        ReferenceDocument::Schema => plimsoll_config::published_schema().into_bytes(),
    };
    print(document)?;
    Ok(ExitCode::SUCCESS)
}

/// Renders the man page of a subcommand, or of the program where `name` is empty.
fn man(name: &str) -> Result<Vec<u8>, ErrorReport> {
    let mut program = Cli::command();
    // clap fills in the full name of a subcommand only here; without it the page says `engine` alone.
    program.build();
    let command = match name {
        "" => program,
        _ => {
            let found = program.find_subcommand(name);
            found
                .ok_or_else(|| {
                    ErrorReport::input(ErrorReport::new(format!(
                        "there is no subcommand `{name}`; `plimsoll --help` lists them"
                    )))
                })?
                .clone()
        }
    };
    let mut page = Vec::new();
    // A fixed date and version line would change with each release; neither helps a reader of `man`.
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}

fn completions(name: &str) -> Result<Vec<u8>, ErrorReport> {
    // Parsed here and not by clap, because the same argument names a subcommand for `man`.
    let shell: Shell = name.parse().map_err(|_| {
        ErrorReport::input(ErrorReport::new(format!(
            "`{name}` is not a supported shell; write bash, zsh, fish, elvish or powershell"
        )))
    })?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    Ok(script)
}
