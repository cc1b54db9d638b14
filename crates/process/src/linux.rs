//! Linux' half of what programs that Plimsoll runs for itself need.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, MemfdFlags, access, memfd_create};

/// The folder in which such a program starts.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from("/")
}

/// The file name of a program that is looked up on PATH.
pub(crate) fn file_name(program: &Path) -> PathBuf {
    program.to_owned()
}

pub(crate) fn is_program(path: &Path) -> bool {
    // access(2) rather than the mode bits: it also fails on a file system that is mounted noexec.
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// A file without a name.
pub(crate) fn unlinked_file() -> io::Result<File> {
    Ok(File::from(memfd_create("plimsoll-helper-output", MemfdFlags::CLOEXEC)?))
}
