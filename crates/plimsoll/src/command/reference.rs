//! `plimsoll reference`: documents generated from the command line and the configuration schema (hidden
//! command).
//!
//! `cargo xtask docs` writes them into `docs/reference`; CI fails if they are out of date.

mod commands;
mod configuration;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::Cli;
use crate::report::ExitStatus;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Document to print
    document: ReferenceDocument,
    /// Shell of the completions, or subcommand of the man page
    name: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReferenceDocument {
    Markdown,
    Man,
    Completions,
    Configuration,
    Schema,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("`{0}` is not a supported shell; write bash, zsh, fish, elvish or powershell")]
    Shell(String),
    #[error("there is no subcommand `{0}`; `plimsoll --help` lists them")]
    Subcommand(String),
    #[error("cannot read the schema: {0}")]
    Schema(#[from] serde_json::Error),
    #[error("cannot write to stdout: {0}")]
    Print(#[from] io::Error),
}

impl ExitStatus for Error {
    fn is_input(&self) -> bool {
        matches!(self, Self::Shell(_) | Self::Subcommand(_))
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let name = arguments.name.as_deref().unwrap_or_default();
    let document = match arguments.document {
        ReferenceDocument::Markdown => commands::markdown(Cli::command()).into_bytes(),
        ReferenceDocument::Man => man(name)?,
        ReferenceDocument::Completions => completions(name)?,
        ReferenceDocument::Configuration => configuration::markdown(&plimsoll_config::schema())?.into_bytes(),
        ReferenceDocument::Schema => plimsoll_config::schema().into_bytes(),
    };
    anstream::stdout().lock().write_all(&document)?;
    Ok(ExitCode::SUCCESS)
}

/// Renders the man page of a subcommand, or of the program where `name` is empty.
fn man(name: &str) -> Result<Vec<u8>, Error> {
    let mut program = Cli::command();
    // clap fills in the full name of a subcommand only here; without it the page says `engine` alone.
    program.build();
    let command = match name {
        "" => program,
        _ => {
            let found = program.find_subcommand(name);
            found.ok_or_else(|| Error::Subcommand(name.to_owned()))?.clone()
        }
    };
    let mut page = Vec::new();
    // A fixed date and version line would change with each release; neither helps a reader of `man`.
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}

fn completions(name: &str) -> Result<Vec<u8>, Error> {
    // Parsed here and not by clap, because the same argument names a subcommand for `man`.
    let shell: Shell = name.parse().map_err(|_| Error::Shell(name.to_owned()))?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    Ok(script)
}
