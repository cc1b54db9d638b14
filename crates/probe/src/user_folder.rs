//! Finds the user's configuration folder, where measurements of this machine are stored.

use std::path::{Path, PathBuf};
use std::{fs, io};

use plimsoll_file::Replacement;

const FOLDER: &str = "plimsoll";

/// The folder; `None` if the environment names none.
pub(crate) fn path() -> Option<PathBuf> {
    Some(plimsoll_file::user_base("XDG_CONFIG_HOME", ".config")?.join(FOLDER))
}

/// Writes a file, which appears whole or not at all, and its folder.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    plimsoll_file::replace(path, text.as_bytes(), Replacement::USUAL)
}
