//! `plimsoll engine`: engines on this machine, and the installation of one for the CPU.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_launch::engine;
use plimsoll_launch::engine::{
    EngineError, EngineProgram, Home, HomeError, InstallError, Origin, RELEASE, Step,
};
use serde::Serialize;

use crate::report::ExitStatus;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Install a llama.cpp server for the CPU from PyPI, in a directory of its own
    Install {
        /// Print the engine as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the engines on this machine; the first one would be used
    List {
        /// Print the engines as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the path of the engine that would be used
    Path {
        /// Print the engine as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Find(#[from] EngineError),
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error("cannot write to stdout: {0}")]
    Print(#[from] io::Error),
}

impl ExitStatus for Error {}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    match arguments.verb {
        Verb::Install { json } => install(json)?,
        Verb::List { json } => list(json)?,
        Verb::Path { json } => path(json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn install(json: bool) -> Result<(), Error> {
    let program = engine::install(&Home::from_environment()?, |step| {
        report(step, &mut anstream::stderr())
    })?;
    show_path(&program, json)
}

fn path(json: bool) -> Result<(), Error> {
    show_path(&engine::find(None)?, json)
}

fn list(json: bool) -> Result<(), Error> {
    let home = Home::from_environment()?;
    let found: Vec<_> = [engine::on_search_path(), engine::installed(&home)]
        .into_iter()
        .flatten()
        .collect();
    let rows: Vec<Row> = found.iter().map(Row::of).collect();
    if json {
        return print_json(&Listing {
            schema: "plimsoll.engines/1",
            engines: &rows,
        });
    }
    let mut out = anstream::stdout().lock();
    for row in &rows {
        writeln!(out, "{}", row.line())?;
    }
    if rows.is_empty() {
        writeln!(
            anstream::stderr(),
            "no engine is there\nhint: `plimsoll engine install` installs a CPU engine"
        )?;
    }
    Ok(())
}

/// Says on stderr what the installation does next; a line that cannot be written is no reason to stop it.
pub(super) fn report(step: Step, to: &mut impl Write) {
    let _ = match step {
        Step::WaitForOther => writeln!(to, "another installation is running, waiting for it"),
        Step::MakeVenv => writeln!(to, "making a Python environment"),
        Step::FetchWheel => writeln!(to, "fetching xllamacpp {RELEASE} from PyPI (34 MB)"),
        Step::WriteAdapter => writeln!(to, "writing the llama-server adapter"),
        Step::AlreadyThere => writeln!(to, "the engine is already there"),
    };
}

fn show_path(program: &EngineProgram, json: bool) -> Result<(), Error> {
    if json {
        return print_json(&Row::of(program));
    }
    writeln!(anstream::stdout(), "{}", program.path.display())?;
    Ok(())
}

#[derive(Serialize)]
struct Listing<'a> {
    schema: &'static str,
    engines: &'a [Row<'a>],
}

/// One engine as shown.
#[derive(Serialize)]
struct Row<'a> {
    path: &'a Path,
    origin: Origin,
    kind: Option<&'static str>,
    build: Option<u32>,
    /// Its version line as printed.
    version: Option<String>,
    /// Error of identifying the engine, if any.
    error: Option<String>,
}

impl<'a> Row<'a> {
    fn of(program: &'a EngineProgram) -> Self {
        let (identity, error) = match engine::identify(program) {
            Ok(identity) => (Some(identity), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            path: &program.path,
            origin: program.origin,
            kind: identity.as_ref().map(|identity| identity.engine.kind.name()),
            build: identity.as_ref().and_then(|identity| identity.engine.build),
            version: identity.map(|identity| identity.version),
            error,
        }
    }

    fn line(&self) -> String {
        let origin = match self.origin {
            Origin::Configured => "configured",
            Origin::SearchPath => "on PATH",
            Origin::Installed => "installed",
        };
        let build = self
            .build
            .map_or_else(|| "build not known".to_owned(), |build| format!("b{build}"));
        let what = match (&self.error, self.kind) {
            (None, Some(kind)) => format!("{kind} {build}"),
            (error, _) => error.clone().unwrap_or_default(),
        };
        format!("{}  {origin}  {what}", self.path.display())
    }
}

fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
