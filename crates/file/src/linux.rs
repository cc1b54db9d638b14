//! Opens a file on Linux without waiting, even if its path has become a named pipe, and makes files with mode
//! and owner.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::{Access, FileUsers};

/// Variable of the user's home directory.
pub(super) const HOME: &str = "HOME";

pub(super) fn look(path: &Path, access: Access) -> io::Result<Metadata> {
    if access.follows { fs::metadata(path) } else { fs::symlink_metadata(path) }
}

/// The path may name a FIFO by now, for whose writer NONBLOCK does not wait.
pub(super) fn open(path: &Path, access: Access) -> io::Result<File> {
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    flags |= if access.writes { OFlags::WRONLY } else { OFlags::RDONLY };
    flags.set(OFlags::NOFOLLOW, !access.follows);
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// A new file, which must not be there.
pub(super) fn create(path: &Path, users: FileUsers<'_>) -> io::Result<File> {
    let mode = if matches!(users, FileUsers::Usual) { 0o666 } else { 0o600 };
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let FileUsers::Of(about) = users else { return Ok(file) };
    let give = || {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (about.uid(), about.gid()) {
            fchown(&file, Some(about.uid()), Some(about.gid()))?;
        }
        file.set_permissions(about.permissions())
    };
    give().inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(file)
}

pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(bytes, offset)
}

/// pwrite(2), which changes no other byte.
pub(super) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}
