//! Stores the sizes of CUDA contexts that `plimsoll measure calibrate` measured, for every later plan.
//!
//! It is in the user's configuration folder (`plimsoll/contexts.toml`).

use std::path::{Path, PathBuf};
use std::{fs, io};

use plimsoll_base::Bytes;
use plimsoll_planner::contexts::{ReadContextsError, WriteContextsError};
use plimsoll_planner::{MeasuredContext, contexts};

use crate::user_folder;

const FILE: &str = "contexts.toml";
/// Maximum length of the file.
const LONGEST: Bytes = Bytes::mib(1);
/// Tells the driver's version without the driver's library.
const DRIVER: &str = "/proc/driver/nvidia/version";

#[derive(Debug, thiserror::Error)]
pub enum ContextsError {
    #[error("cannot read {}: {error}", path.display())]
    Open { path: PathBuf, error: io::Error },
    #[error("{} is longer than {LONGEST}, so it is not a table of CUDA contexts\nhint: move the file \
        away", .0.display())]
    Long(PathBuf),
    #[error("{}: {error}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: ReadContextsError,
    },
    #[error("cannot write {}: {error}\nhint: choose another place with --write", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Encode(#[from] WriteContextsError),
}

/// Path of the user's table; `None` if no folder for it is known.
pub fn place() -> Option<PathBuf> {
    Some(user_folder::path()?.join(FILE))
}

/// The measurements of this machine, those of its driver first.
pub fn measured() -> Vec<MeasuredContext> {
    // DECISION: a plan continues without an unreadable file; `calibrate` refuses to overwrite it.
    let Some(path) = place() else { return Vec::new() };
    let mut contexts = read(&path).unwrap_or_else(|error| {
        // A plan with published values is less exact; no plan at all would be worse.
        tracing::warn!("the plan uses published sizes of CUDA contexts: {error}");
        Vec::new()
    });
    if !contexts.is_empty() {
        contexts::prefer(&mut contexts, driver().as_deref());
    }
    contexts
}

/// Finds out whether rows can be added to the file, before any measurement.
pub fn check(path: &Path) -> Result<(), ContextsError> {
    read(path).map(drop)
}

/// Adds rows to the table, which appears whole or not at all.
pub fn keep(path: &Path, new: &[MeasuredContext]) -> Result<(), ContextsError> {
    let mut contexts = read(path)?;
    for row in new {
        contexts::learn(&mut contexts, row.clone());
    }
    let text = contexts::write(&contexts)?;
    user_folder::replace(path, &text).map_err(|error| ContextsError::Write { path: path.to_owned(), error })
}

/// A table that is not there is empty.
fn read(path: &Path) -> Result<Vec<MeasuredContext>, ContextsError> {
    let open = |error| ContextsError::Open { path: path.to_owned(), error };
    let text = match plimsoll_file::read_text(path, LONGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(ContextsError::Long(path.to_owned()));
        }
        read => read.map_err(open)?,
    };
    contexts::read(&text).map_err(|error| ContextsError::Read { path: path.to_owned(), error })
}

fn driver() -> Option<String> {
    version(&fs::read_to_string(DRIVER).ok()?)
}

/// The first word of the first line that looks like a version: `NVRM version: … Kernel Module  580.159.04
/// Release Build …`.
fn version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        word.contains('.') && word.split('.').all(digits)
    };
    // Only the first line is the driver's; the next one names the compiler (`GCC version: …`).
    let words = text.lines().next()?.split_ascii_whitespace();
    words.map(str::trim).find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;
    use plimsoll_planner::EngineKind;

    use super::*;

    fn row(build: u32) -> MeasuredContext {
        MeasuredContext {
            card: "NVIDIA H200".to_owned(),
            driver: "580.159.04".to_owned(),
            engine: EngineKind::LlamaCpp,
            build: Some(build),
            context: Bytes::mib(590),
            opened: None,
            cublas: None,
            speed: None,
            version: String::new(),
            measured: "2026-11-21".to_owned(),
        }
    }

    #[test]
    fn a_table_is_made_with_its_folder_and_added_to() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b/contexts.toml");
        keep(&path, &[row(1)]).unwrap();
        keep(&path, &[row(2)]).unwrap();
        assert_eq!(read(&path).unwrap(), [row(1), row(2)]);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn unreadable_context_tables_are_not_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("contexts.toml");
        fs::write(&path, "something else").unwrap();
        let error = keep(&path, &[row(1)]).unwrap_err().to_string();
        assert!(error.contains("contexts.toml: line 1: "), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "something else");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named_with_the_remedy() {
        let error = keep(Path::new("/proc/nowhere/contexts.toml"), &[row(1)]).unwrap_err();
        assert!(error.to_string().contains("--write"), "{error}");
    }

    #[test]
    fn the_driver_is_read_from_the_lines_of_both_kernel_modules() {
        for line in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Mon Oct 20 10:00:00 UTC 2025",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (a@b)",
        ] {
            assert_eq!(version(line).as_deref(), Some("580.159.04"));
        }
        assert_eq!(version("GCC version:"), None);
    }
}
