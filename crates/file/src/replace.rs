//! Replaces a file in one step: a reader sees the old bytes or the new ones, and never a part of them.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::system;

/// Files that this process has written beside their places.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Who may read and write a file that is written anew.
#[derive(Clone, Copy, Debug)]
pub enum FileUsers<'a> {
    /// Those whom the process's mask permits.
    Usual,
    /// This user alone.
    Own,
    /// Owner, group and permissions are those of another file.
    Of(&'a Metadata),
}

/// A file that is written anew.
#[derive(Clone, Copy, Debug)]
pub struct Replacement<'a> {
    pub users: FileUsers<'a>,
    /// The bytes are on the disk before they take the place: a power cut leaves the old ones or these.
    pub sync: bool,
}

impl Replacement<'static> {
    pub const USUAL: Self = Self { users: FileUsers::Usual, sync: false };
    pub const OWN: Self = Self { users: FileUsers::Own, sync: false };
}

/// Writes `bytes` to a new file and moves it to `path`. A link at `path` is replaced, not followed.
///
/// The new file lies in the same folder, because rename(2) does not cross file systems. Its name is short:
/// that of the file may be as long as a name can be.
pub fn replace(path: &Path, bytes: &[u8], how: Replacement<'_>) -> io::Result<()> {
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let new = path.with_file_name(format!(".{}-{number}.new", process::id()));
    // A file that was left or placed there is no place to write to.
    let _ = fs::remove_file(&new);
    let mut file = system::create(&new, how.users)?;
    let mut write = || {
        file.write_all(bytes)?;
        if how.sync { file.sync_all() } else { Ok(()) }
    };
    write().and_then(|()| fs::rename(&new, path)).inspect_err(|_| drop(fs::remove_file(&new)))
}
