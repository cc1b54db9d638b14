//! Finds and supervises a program that a verb starts on Windows, in a job that ends with the verb.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use plimsoll_inject::{StartError, leave_ctrl_c, start};
use plimsoll_probe::guard::{Record, read_pages, read_tree};
use serde::Serialize;

use crate::own_failure::OWN_FAILURE;
pub use crate::own_failure::{NOT_EXECUTABLE, NOT_FOUND, own_failure};
use crate::report::ErrorReport;

/// Interval between readings of the pages.
const PERIOD: Duration = Duration::from_millis(50);
/// What the system tries at the end of a program's name.
const ENDINGS: [&str; 2] = ["", ".exe"];

/// Exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildEnd {
    Code(i32),
}

impl ChildEnd {
    fn of(status: ExitStatus) -> Self {
        // Windows has a code for every process that has ended.
        Self::Code(status.code().unwrap_or(OWN_FAILURE.into()))
    }

    /// Ends as the program did. A code of more than eight bits, such as that of a crash, becomes 255.
    pub fn repeat(self) -> ExitCode {
        let Self::Code(code) = self;
        ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
    }
}

/// Splits a command into the program, by its path, and its arguments.
pub fn program(command: &[OsString]) -> Result<(PathBuf, &[OsString]), ErrorReport> {
    let (name, rest) = match command.split_first() {
        Some((name, rest)) => (Path::new(name), rest),
        None => (Path::new(""), command),
    };
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = match name.components().count() {
        // The working folder is not searched for a bare name: a file there would stand in for a program.
        0 | 1 => std::env::split_paths(&paths).filter(|folder| folder.is_absolute()).collect(),
        _ => vec![PathBuf::new()],
    };
    let candidates = folders.iter().flat_map(|folder| {
        ENDINGS.map(|ending| {
            let mut path = folder.join(name).into_os_string();
            path.push(ending);
            PathBuf::from(path)
        })
    });
    let found = candidates.into_iter().find(|path| path.is_file());
    let found = found.and_then(|path| std::path::absolute(path).ok());
    let missing = || ErrorReport::new(format!("the program `{}` does not exist", name.display()));
    Ok((found.ok_or_else(|| missing().with_status(NOT_FOUND))?, rest))
}

/// Starts the program with libraries in it. Returns its end, and the record of the pages and the ledger of
/// all its processes; and the error of a system that gives the program no job.
pub fn follow(
    command: &mut Command,
    libraries: &[&Path],
    pages: &Path,
) -> Result<(ChildEnd, Record, Option<io::Error>), ErrorReport> {
    let started = start(command, libraries).map_err(|error| {
        let is_missing =
            matches!(&error, StartError::Start { source, .. } if source.kind() == io::ErrorKind::NotFound);
        ErrorReport::from(error).with_status(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
    })?;
    let (mut child, job) = (started.child, started.job);
    // The console sends Ctrl-C to the program, too, whose end is waited for.
    leave_ctrl_c();
    let mut record = Record::default();
    let status = loop {
        record.see(&read_pages(pages), read_tree(pages));
        if let Some(status) = child.try_wait().map_err(ErrorReport::of("cannot watch the program"))? {
            break status;
        }
        std::thread::sleep(PERIOD);
    };
    // Once more: the last allocations and refusals happen within the last interval.
    record.see(&read_pages(pages), read_tree(pages));
    Ok((ChildEnd::of(status), record, job.err()))
}
