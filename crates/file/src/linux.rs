//! Opens a file on Linux without waiting, even if its path has become a named pipe.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::Access;

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
