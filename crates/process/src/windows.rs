//! Windows' half of what programs that Plimsoll runs for itself need.

use std::env;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The folder in which such a program starts: only administrators write there.
pub(crate) fn folder() -> PathBuf {
    env::var_os("SystemRoot")
        .map_or_else(|| PathBuf::from("C:\\"), |root| PathBuf::from(root).join("System32"))
}

/// The file name of a program that is looked up on PATH. A name without an extension is that of an `.exe`.
pub(crate) fn file_name(program: &Path) -> PathBuf {
    if program.extension().is_some() { program.to_owned() } else { program.with_extension("exe") }
}

/// Windows has no right of execution that a file could lack by its mode.
pub(crate) fn is_program(path: &Path) -> bool {
    path.is_file()
}

/// A file that is removed when it is closed.
pub(crate) fn unlinked_file() -> io::Result<File> {
    tempfile::tempfile()
}
