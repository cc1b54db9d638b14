//! Reads and writes small files, such as caches, that only the current user can access.
//!
//! A file that another user could have written is not read, and each write replaces the file in one step.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use plimsoll_base::Bytes;
use plimsoll_file::Replacement;
use rustix::process::geteuid;

/// Mode bits that let a group or every user write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Reads a file of at most `longest` bytes that only this user, or root, could have written.
///
/// DECISION: the file counts and not its folder. Files that another user places in a shared folder are
/// theirs.
pub fn read(path: &Path, longest: Bytes) -> io::Result<Vec<u8>> {
    let file = plimsoll_file::open_nofollow(path)?;
    let about = file.metadata()?;
    let is_own = [0, geteuid().as_raw()].contains(&about.uid()) && about.mode() & WRITABLE_BY_OTHERS == 0;
    if !is_own {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    plimsoll_file::read_open(file, longest)
}

/// Writes a file in one step, for this user alone, and makes a missing folder.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    plimsoll_file::replace(path, bytes, Replacement::OWN)
}
