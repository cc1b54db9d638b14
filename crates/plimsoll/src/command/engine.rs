//! `plimsoll engine`: list of the engines on this machine, and installation of one for the CPU.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_launch::engine;
use plimsoll_launch::engine::{
    EngineError, EngineHome, EngineOrigin, EngineProgram, HomeError, InstallError, InstallStep, RELEASE,
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
    // Steps go to stderr: stdout carries only the path, so that `$(plimsoll engine install)` works.
    let program = engine::install(&EngineHome::from_environment()?, |step| {
        report(step, &mut anstream::stderr())
    })?;
    show_path(&program, json)
}

fn path(json: bool) -> Result<(), Error> {
    show_path(&engine::find(None)?, json)
}

fn list(json: bool) -> Result<(), Error> {
    let home = EngineHome::from_environment()?;
    // The order in which `find` looks, so the first line of the list is the engine that would be used.
    let found: Vec<_> = [engine::on_search_path(), engine::installed(&home)]
        .into_iter()
        .flatten()
        .collect();
    let rows: Vec<Row> = found.iter().map(Row::of).collect();
    if json {
        return print_json(&EngineListing {
            schema: "plimsoll.engines/1",
            engines: &rows,
        });
    }
    let mut out = anstream::stdout().lock();
    for row in &rows {
        writeln!(out, "{}", row.line())?;
    }
    // On stderr, so that a script that counts the lines of stdout counts zero.
    if rows.is_empty() {
        writeln!(
            anstream::stderr(),
            "no engine is there\nhint: `plimsoll engine install` installs a CPU engine"
        )?;
    }
    Ok(())
}

/// Prints the next step of the installation on stderr; a failed write does not stop the installation.
pub(super) fn report(step: InstallStep, to: &mut impl Write) {
    let _ = match step {
        InstallStep::WaitForOther => writeln!(to, "another installation is running, waiting for it"),
        InstallStep::MakeVenv => writeln!(to, "making a Python environment"),
        InstallStep::FetchWheel => writeln!(to, "fetching xllamacpp {RELEASE} from PyPI (34 MB)"),
        InstallStep::WriteAdapter => writeln!(to, "writing the llama-server adapter"),
        InstallStep::AlreadyThere => writeln!(to, "the engine is already there"),
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
struct EngineListing<'a> {
    schema: &'static str,
    engines: &'a [Row<'a>],
}

/// One engine of the list.
#[derive(Serialize)]
struct Row<'a> {
    path: &'a Path,
    origin: EngineOrigin,
    kind: Option<&'static str>,
    build: Option<u32>,
    /// Its version line, unchanged.
    version: Option<String>,
    /// The failure of the identification, if it failed.
    error: Option<String>,
}

impl<'a> Row<'a> {
    fn of(program: &'a EngineProgram) -> Self {
        let (identity, error) = match engine::identify(program) {
            Ok(identity) => (Some(identity), None),
            // An engine that does not start is listed with its error: hiding it would leave the user
            // searching.
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
            EngineOrigin::Configured => "configured",
            EngineOrigin::SearchPath => "on PATH",
            EngineOrigin::Installed => "installed",
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
    // serde_json wraps I/O errors; converted back, a closed pipe is recognised and ends with status 141.
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
