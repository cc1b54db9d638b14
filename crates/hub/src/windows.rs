//! Makes hard links, renames files and finds the free space of a disk on Windows.

use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;

use plimsoll_base::Bytes;

/// Variable of the user's home directory.
pub(crate) const HOME: &str = "USERPROFILE";

/// `FILE_FLAG_OPEN_REPARSE_POINT` (CreateFileW): a link is opened as itself.
const OPEN_LINK: u32 = 0x0020_0000;

/// A symbolic link needs a privilege that users lack, and another name of the blob does not.
pub(crate) fn link(blob: impl AsRef<Path>, path: &Path) -> io::Result<()> {
    fs::hard_link(path.parent().unwrap_or(path).join(blob), path)
}

/// Options that do not follow a link.
pub(crate) fn itself(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(OPEN_LINK)
}

/// Free space is not known: safe Rust has no call that asks for it.
pub(crate) fn free(_: &Path) -> io::Result<Option<Bytes>> {
    Ok(None)
}

/// A number that is the same for files on one disk: all, because free space is not known.
pub(crate) fn disk(_: &Metadata) -> u64 {
    0
}

/// Gives a file its name, unless something has it by now: a rename would replace that, and a link does not.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).and_then(|()| fs::remove_file(from))
}
