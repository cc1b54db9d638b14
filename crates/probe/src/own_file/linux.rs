//! Linux' half: owners and mode bits.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::process::geteuid;

/// Mode bits that let a group or every user write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// True where only this user, or root, could have written the file.
pub(super) fn is_own(about: &Metadata) -> bool {
    [0, geteuid().as_raw()].contains(&about.uid()) && about.mode() & WRITABLE_BY_OTHERS == 0
}

/// Makes a folder, and those above it, for this user alone.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
