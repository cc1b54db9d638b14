//! `plimsoll engine`: lists the engines on this machine, and installs one that computes on the CPU.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_engine::program;
use plimsoll_engine::program::{EngineHome, EngineOrigin, EngineProgram, InstallStep, RELEASE};
use serde::Serialize;
use serde_json::json;

use crate::report::{ErrorReport, print, print_as, status};
use crate::terminal;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Install a llama.cpp server for the CPU from PyPI, in a directory of its own
    #[command(
        after_help = "Example: plimsoll engine install\n\nExit status: 0, or 1 if the installation failed."
    )]
    Install {
        /// Print the engine as JSON, or write it to FILE
        #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
        json: Option<PathBuf>,
    },
    /// List the engines on this machine; the first one is used by default
    #[command(after_help = "Example: plimsoll engine list --json\n\nExit status: 0, or 1 if there is none.")]
    List {
        /// Print the engines as JSON, or write it to FILE
        #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
        json: Option<PathBuf>,
    },
    /// Print the path of the engine that is used by default
    #[command(
        alias = "find",
        after_help = "Example: $(plimsoll engine path) -m model.gguf\n\n\
            Exit status: 0, or 1 if there is none."
    )]
    Path {
        /// Print the engine as JSON, or write it to FILE
        #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
        json: Option<PathBuf>,
    },
    /// Remove the engines of `engine install`, and the models of `plimsoll quickstart`
    #[command(
        after_help = "Example: plimsoll engine remove\n\nExit status: 0, or 1 if a file cannot be removed."
    )]
    Remove,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, ErrorReport> {
    match arguments.verb {
        Verb::Install { json } => install(json.as_deref())?,
        Verb::List { json } => return list(json.as_deref()),
        Verb::Path { json } => path(json.as_deref())?,
        Verb::Remove => remove()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn install(json: Option<&Path>) -> Result<(), ErrorReport> {
    // Steps go to stderr: stdout carries only the path, so that `$(plimsoll engine install)` works.
    let program =
        program::install(&EngineHome::from_environment()?, |step| report(step, &mut terminal::stderr()))?;
    show_path(&program, json)
}

fn remove() -> Result<(), ErrorReport> {
    let home = EngineHome::from_environment()?;
    if let Some((process, name)) = program::in_use(&home) {
        let text = format!(
            "the installed engine is in use by process {process} ({name})\nhint: end it first; `plimsoll stop` ends a \
             server of yours, and `plimsoll unload --all` its engines"
        );
        return Err(ErrorReport::new(text));
    }
    let removed = program::uninstall(&home)?;
    if removed.is_empty() {
        print("nothing is installed\n")
    } else {
        print(removed.iter().map(|path| format!("removed {}\n", path.display())).collect::<String>())
    }
}

fn path(json: Option<&Path>) -> Result<(), ErrorReport> {
    show_path(&program::find(None)?, json)
}

/// The engines in the order in which `find` looks: the first is the one that would be used.
fn engines() -> Result<Vec<EngineProgram>, ErrorReport> {
    let home = EngineHome::from_environment()?;
    Ok([program::on_search_path(), program::installed(&home)].into_iter().flatten().collect())
}

/// The engines as JSON.
pub(super) fn found() -> Result<serde_json::Value, ErrorReport> {
    let found = engines()?;
    Ok(json!({ "engines": found.iter().map(Row::of).collect::<Vec<_>>() }))
}

fn list(json: Option<&Path>) -> Result<ExitCode, ErrorReport> {
    let found = engines()?;
    let rows: Vec<Row> = found.iter().map(Row::of).collect();
    print_as(json, &json!({ "schema": "plimsoll.engines/1", "engines": rows }), || {
        rows.iter().map(|row| row.line() + "\n").collect()
    })?;
    // On stderr, so that a script that counts the lines of stdout counts zero.
    if json.is_none() && rows.is_empty() {
        writeln!(
            terminal::stderr(),
            "no engine is installed\nhint: `plimsoll engine install` installs a CPU engine"
        )?;
    }
    Ok(status(!rows.is_empty()))
}

/// Prints the next step of the installation on stderr; a failed write does not stop the installation.
pub(super) fn report(step: InstallStep, to: &mut impl Write) {
    let _ = match step {
        InstallStep::WaitForOther => writeln!(to, "another installation is running; waiting until it ends"),
        InstallStep::MakeVenv => writeln!(to, "making a Python environment"),
        InstallStep::FetchWheel => writeln!(to, "fetching xllamacpp {RELEASE} from PyPI (34 MB)"),
        InstallStep::WriteAdapter => writeln!(to, "writing the llama-server adapter"),
        InstallStep::AlreadyThere => writeln!(to, "the engine is already installed"),
    };
}

fn show_path(program: &EngineProgram, json: Option<&Path>) -> Result<(), ErrorReport> {
    match json {
        // Asked for its version only where that is printed.
        Some(_) => print_as(json, &Row::of(program), || format!("{}\n", program.path.display())),
        None => print(format!("{}\n", program.path.display())),
    }
}

/// One engine of the list.
#[derive(Serialize)]
struct Row<'a> {
    path: &'a Path,
    origin: EngineOrigin,
    kind: Option<&'static str>,
    build: Option<u32>,
    /// Version line that the engine prints, unchanged.
    version: Option<String>,
    /// Reason why the engine could not be identified.
    error: Option<String>,
}

impl<'a> Row<'a> {
    fn of(program: &'a EngineProgram) -> Self {
        let (identity, error) = match program::identify(program) {
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
        let build = self.build.map_or_else(|| "unknown build".to_owned(), |build| format!("b{build}"));
        let what = match (&self.error, self.kind) {
            (None, Some(kind)) => format!("{kind} {build}"),
            (error, _) => error.clone().unwrap_or_default(),
        };
        format!("{}  {origin}  {what}", self.path.display())
    }
}
