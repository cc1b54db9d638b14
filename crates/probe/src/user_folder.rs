//! Finds the user's configuration folder, where measurements of this machine are stored.

use std::path::{Path, PathBuf};
use std::{fs, io};

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
    // Beside the file, because rename(2) does not cross file systems; the process number keeps two writers
    // apart.
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    fs::write(&partial, text)?;
    fs::rename(&partial, path).inspect_err(|_| drop(fs::remove_file(&partial)))
}
