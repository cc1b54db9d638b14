//! Makes links, renames files and finds the free space of a disk on Linux.

use std::fs::{self, Metadata, OpenOptions};
use std::io;
pub(crate) use std::os::unix::fs::symlink as link;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use plimsoll_base::Bytes;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Variable of the user's home directory.
pub(crate) const HOME: &str = "HOME";

/// Options that neither follow a link nor wait for the writer of a FIFO.
pub(crate) fn itself(options: &mut OpenOptions) -> &mut OpenOptions {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    options.custom_flags(flags)
}

/// Free space on the disk of a folder.
pub(crate) fn free(folder: &Path) -> io::Result<Option<Bytes>> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(Some(Bytes::new(disk.f_bavail.saturating_mul(disk.f_frsize))))
}

/// A number that is the same for files on one disk.
pub(crate) fn disk(about: &Metadata) -> u64 {
    about.dev()
}

/// Gives a file its name, unless something has it by now.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that cannot rename so can link.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs::hard_link(from, to).and_then(|()| fs::remove_file(from))
        }
        named => Ok(named?),
    }
}
