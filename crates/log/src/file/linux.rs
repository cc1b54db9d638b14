//! Opens the log file on Linux: readable by its owner alone, and refused if another user may have planted it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Sticky and writable by all, as /tmp is (inode(7)).
const SHARED: u32 = 0o1002;
/// A link was not followed, and a FIFO has no reader (open(2)).
const LOOP: i32 = Errno::LOOP.raw_os_error();
const NO_READER: i32 = Errno::NXIO.raw_os_error();

pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Engines log prompts, so a new file is readable by this user only.
    options.create(true).append(true).mode(0o600);
    if is_shared(path) {
        // Another user may have made a link or a FIFO here.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        options.custom_flags(i32::try_from(flags).unwrap_or_default());
    }
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(LOOP | NO_READER) if is_shared(path) => strangers(),
        _ => error,
    })?;
    let about = file.metadata()?;
    if is_shared(path) && !(about.is_file() && about.uid() == geteuid().as_raw()) {
        return Err(strangers());
    }
    Ok(file)
}

/// True if the file lies in a folder like /tmp, where every user may make files.
///
/// DECISION: kernels refuse to write to another user's file there (`fs.protected_regular` and
/// `fs.protected_symlinks`, proc_sys_fs(5)), but not all are set so. In other folders a link is the user's
/// own.
fn is_shared(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.metadata().is_ok_and(|about| about.mode() & SHARED == SHARED)
}

fn strangers() -> io::Error {
    io::Error::other(
        "another user may have created this file, because every user can write to its folder; choose another \
            folder",
    )
}

/// Device and inode of the file that is this program's stderr.
pub(crate) fn of_stderr() -> Option<String> {
    let about = fstat(io::stderr()).ok()?;
    Some(format!("{}:{}", about.st_dev, about.st_ino))
}
