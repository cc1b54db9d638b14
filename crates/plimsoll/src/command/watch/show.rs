//! `plimsoll watch show`: display of a memory recording as text, as CSV or as an HTML page with plots.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll_telemetry::record::{Redaction, summarise};

use crate::report::{ErrorReport, write_file};
use crate::screen;
use crate::screen::RecordReport;

/// Largest recording that is read; a day at two samples a second is 20 MB.
const MOST_BYTES: u64 = 1 << 30;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Recording to show
    file: PathBuf,
    /// Print every sample as CSV instead
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the summary as JSON (plimsoll.watch/1) instead
    #[arg(long)]
    json: bool,
    /// Write an HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replace names, paths and UUIDs by placeholders; the same name always gets the same placeholder
    #[arg(long)]
    redact: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let path = &arguments.file;
    let bytes = read(path)?;
    // Parsed before a page is written, so that a damaged record leaves no empty page.
    let mut summary = summarise(&bytes)
        .map_err(|error| ErrorReport::input(ErrorReport::new(format!("`{}`: {error}", path.display()))))?;
    // The CSV uses the same substitutions as the summary, so that its columns match.
    let redaction = arguments.redact.then(|| Redaction::redact(&mut summary));
    let report = RecordReport::new(&summary);
    if let Some(page) = &arguments.html {
        write_file(page, report.html())?;
    }
    // A day at two samples a second is 170 000 rows; unbuffered, each field would be a write(2).
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    if arguments.csv {
        screen::csv(&bytes, redaction, &mut stdout)?;
    } else if arguments.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&summary)?)?;
    } else {
        write!(stdout, "{}", report.text())?;
    }
    // Dropping a BufWriter ignores errors, and a full disk would go unnoticed.
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Vec<u8>, ErrorReport> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
    read.map_err(|error| ErrorReport::input(ErrorReport::of_file("cannot read the recording", path)(error)))?;
    Ok(bytes)
}
