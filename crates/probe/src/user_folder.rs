//! Finds the user's configuration folder, where measurements of this machine are stored.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FOLDER: &str = "plimsoll";

/// The folder; `None` if the environment names none.
pub(crate) fn path() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = env::var_os(name).map(PathBuf::from);
        // The XDG Base Directory specification asks that relative paths be ignored.
        path.filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(base.join(FOLDER))
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
