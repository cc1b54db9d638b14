//! Reads and writes the records of models that were added while the server ran, so that it serves them again
//! after a restart. They are `plimsoll/NAME.json` in the download folder.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll_file::Replacement;

/// Folder of the notes.
const NOTES: &str = "plimsoll";
/// Notes that are read.
const MOST: usize = 4096;

/// The paths of all notes.
pub(crate) fn all(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder.join(NOTES)).into_iter().flatten().flatten().take(MOST);
    entries.map(|entry| entry.path()).filter(|path| path.extension() == Some(OsStr::new("json")))
}

/// The path of the note for a model of this name.
pub(crate) fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(NOTES).join(format!("{}.json", utf8_percent_encode(name, NON_ALPHANUMERIC)))
}

/// Writes a note in one piece, over an older one.
pub(crate) fn write(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let path = path(folder, name);
    fs::create_dir_all(folder.join(NOTES))?;
    plimsoll_file::replace(&path, text, Replacement::USUAL)
}
