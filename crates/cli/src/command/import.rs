//! `plimsoll import`: converts a llama-swap file, a llama-server preset or Ollama's store to a Plimsoll
//! configuration.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[cfg(unix)]
mod linux;
#[cfg(windows)]
mod windows;

use clap::Args;
use plimsoll_flags::Warning;
use plimsoll_import::{ImportedConfiguration, import};

#[cfg(unix)]
use self::linux as system;
#[cfg(windows)]
use self::windows as system;

use crate::report::{ErrorReport, print_data, status};
use crate::terminal;

const MORE: &str = "\
Examples: plimsoll import llama-swap.yaml -o plimsoll.toml
          plimsoll import presets.ini
          plimsoll import ollama

The configuration is written to stdout or FILE. Settings that behave differently, or have no counterpart, \
    are listed on stderr. `plimsoll serve FILE --check` then shows what each model takes.

Exit status: 0 for success, 1 if the source has no model or a file cannot be written, 2 for bad input.";

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// llama-swap's YAML, a preset of llama-server (.ini), `ollama`, or the folder of an Ollama store
    source: PathBuf,
    /// Write the configuration to this file, which must not exist
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file that --output names
    #[arg(long, requires = "output")]
    force: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let imported = import(&arguments.source, &|name| std::env::var(name).ok()).map_err(ErrorReport::input)?;
    match &arguments.output {
        None => print_data(&imported.toml)?,
        Some(path) => write(path, Some(&arguments.source), arguments.force, &imported)?,
    }
    let mut stderr = terminal::stderr();
    // A closed stderr must not fail an import that is written.
    let from = format!("imported from {}", arguments.source.display());
    let _ = stderr.write_all(reported(&from, &imported).as_bytes());
    // A script would go on with a file that serves nothing.
    Ok(status(imported.models > 0))
}

/// Writes the configuration to a file, which must not be its source, nor exist unless `force` says so.
pub(super) fn write(
    path: &Path,
    source: Option<&Path>,
    force: bool,
    imported: &ImportedConfiguration,
) -> Result<(), ErrorReport> {
    let refused = |why: &str| ErrorReport::input(ErrorReport::new(format!("{} {why}", path.display())));
    let real = |path: &Path| path.canonicalize().ok();
    if real(path).is_some_and(|output| Some(output) == source.and_then(real)) {
        return Err(refused("is also the source of the import; choose another file with --output"));
    }
    let mut options = OpenOptions::new();
    system::private(options.write(true));
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let failed = || ErrorReport::of_file("cannot write", path);
    let mut file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => refused("exists already; --force replaces it"),
        _ => failed()(error),
    })?;
    // Before the text, since a file that is replaced keeps its mode.
    system::set_readers(&file, imported.has_secrets).map_err(failed())?;
    file.write_all(imported.toml.as_bytes()).map_err(failed())
}

/// The account for people: how many models were `done`, and both lists.
fn reported(done: &str, imported: &ImportedConfiguration) -> String {
    let list = |heading: &str, warnings: &[Warning]| {
        let lines: String = warnings.iter().map(|warning| format!("  {warning}\n")).collect();
        if lines.is_empty() { format!("\n{heading}: none\n") } else { format!("\n{heading}:\n{lines}") }
    };
    let models = if imported.models == 1 { "model" } else { "models" };
    let mut text = format!("{} {models} {done}\n", imported.models);
    text += &list("behaviour changes", &imported.changes);
    text += &list("cosmetic", &imported.cosmetic);
    if imported.has_secrets {
        text += "\nThe configuration holds API keys or values of the environment; keep it private.\n";
    }
    text
}
