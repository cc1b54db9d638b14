//! `plimsoll watch show`: a recording as text, as CSV or as an HTML page with plots.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll_telemetry::record::{ReadRecordError, Redaction, summarise};

use crate::report::ExitStatus;
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
    /// Replace names, paths and UUIDs, each always by the same word
    #[arg(long)]
    redact: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read the recording `{}`: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("`{}`: {error}", path.display())]
    Parse { path: PathBuf, error: ReadRecordError },
    #[error("cannot write `{}`: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("cannot write to stdout: {0}")]
    Print(#[from] io::Error),
    #[error("cannot write the summary as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl ExitStatus for Error {
    fn is_input(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Parse { .. })
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let path = &arguments.file;
    let bytes = read(path)?;
    let parse = |error| Error::Parse {
        path: path.clone(),
        error,
    };
    // Parsed before a page is written, so that a damaged record leaves no empty page.
    let mut summary = summarise(&bytes).map_err(parse)?;
    // The CSV uses the same substitutions as the summary, so that its columns match.
    let redaction = arguments.redact.then(|| Redaction::redact(&mut summary));
    let report = RecordReport::new(&summary);
    if let Some(page) = &arguments.html {
        fs::write(page, report.html()).map_err(|error| Error::Write {
            path: page.clone(),
            error,
        })?;
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

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
    read.map_err(|error| Error::Read {
        path: path.to_owned(),
        error,
    })?;
    Ok(bytes)
}
