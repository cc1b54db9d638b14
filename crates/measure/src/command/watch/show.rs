//! `plimsoll measure watch show`: displays a recording as text, as JSON, or as an HTML page with plots.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll_base::Bytes;
use plimsoll_verb::report::{ErrorReport, print_as, write_file};

use super::report::RecordReport;
use crate::record::summarise;

/// Largest recording that is read; a day at two samples a second is 20 MB.
const MOST_BYTES: Bytes = Bytes::gib(1);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Recording to show
    file: PathBuf,
    /// Print the summary as JSON (plimsoll.watch/1), or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write an HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let path = &arguments.file;
    let bytes = read(path)?;
    // Parsed before a page is written, so that a damaged record leaves no empty page.
    let summary = summarise(&bytes)
        .map_err(|error| ErrorReport::input(ErrorReport::new(format!("`{}`: {error}", path.display()))))?;
    let report = RecordReport::new(&summary);
    if let Some(page) = &arguments.html {
        write_file(page, report.html())?;
    }
    print_as(arguments.json.as_deref(), &summary, || report.text())?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Vec<u8>, ErrorReport> {
    let read = plimsoll_file::read(path, MOST_BYTES);
    read.map_err(|error| ErrorReport::input(ErrorReport::of_file("cannot read the recording", path)(error)))
}
