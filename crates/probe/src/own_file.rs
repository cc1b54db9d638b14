//! Reads and writes small files, such as caches, that only the current user can access.
//!
//! A file that another user could have written is not read, and each write replaces the file in one step.

#[cfg(unix)]
mod linux;
#[cfg(windows)]
mod windows;

use std::io;
use std::path::Path;

use plimsoll_base::Bytes;
use plimsoll_file::Replacement;

#[cfg(unix)]
use self::linux as system;
#[cfg(windows)]
use self::windows as system;

/// Reads a file of at most `longest` bytes that only this user, or root, could have written.
///
/// DECISION: the file counts and not its folder. Files that another user places in a shared folder are
/// theirs.
pub fn read(path: &Path, longest: Bytes) -> io::Result<Vec<u8>> {
    let file = plimsoll_file::open_nofollow(path)?;
    if !system::is_own(&file.metadata()?) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    plimsoll_file::read_open(file, longest)
}

/// Writes a file in one step, for this user alone, and makes a missing folder.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    system::create_folder(folder)?;
    plimsoll_file::replace(path, bytes, Replacement::OWN)
}
