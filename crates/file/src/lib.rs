//! Opens regular files only, reads them up to a size limit, and replaces a file in one step.
//!
//! A path from a user, a configuration or another program may name anything. Opening a FIFO waits for its
//! writer, a device may act when it is opened, and `/dev/zero` has no end. Every file whose path is not fixed
//! is opened here.
#![forbid(unsafe_code)]

#[cfg(unix)]
mod linux;
mod replace;
#[cfg(windows)]
mod windows;

use std::env;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

#[cfg(unix)]
use linux as system;
use plimsoll_base::Bytes;
#[cfg(windows)]
use windows as system;

pub use self::replace::{FileUsers, Replacement, replace};

const READ: Access = Access { writes: false, follows: true };

/// Opens a regular file for reading, and nothing else.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, READ)
}

/// The same, but a symbolic link is refused.
pub fn open_nofollow(path: &Path) -> io::Result<File> {
    open_as(path, Access { follows: false, ..READ })
}

/// Opens a regular file for writing over its bytes; a symbolic link is refused.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    open_as(path, Access { follows: false, writes: true })
}

/// Reads a regular file of at most `most` bytes.
pub fn read(path: &Path, most: Bytes) -> io::Result<Vec<u8>> {
    read_open(open(path)?, most)
}

/// Reads a regular file of UTF-8 text of at most `most` bytes.
pub fn read_text(path: &Path, most: Bytes) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
    String::from_utf8(read(path, most)?).map_err(not_text)
}

/// Reads an open file from its beginning, of at most `most` bytes.
pub fn read_open(file: File, most: Bytes) -> io::Result<Vec<u8>> {
    let long = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most}"));
    let length = file.metadata()?.len();
    if length > most.get() {
        return Err(long());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).map_err(|_| long())?);
    // One byte more: the file may grow meanwhile, and one of exactly the bound is distinguished from a longer
    // one.
    file.take(most.get().saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= most.get()) { Ok(bytes) } else { Err(long()) }
}

/// Fills `bytes` from an offset of an open file.
pub fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    system::read_exact_at(file, bytes, offset)
}

/// Writes `bytes` at an offset of an open file, and leaves all others as they are.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    system::write_all_at(file, bytes, offset)
}

/// A base directory of the user: that of the variable, or else this one in the home directory.
pub fn user_base(variable: &str, in_home: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| Some(absolute(system::HOME)?.join(in_home)))
}

/// The path that a variable holds. The XDG base directory specification says that relative paths are invalid
/// and must be ignored.
pub fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// What a path is opened for. Each system's half opens it.
#[derive(Clone, Copy, Debug)]
struct Access {
    writes: bool,
    /// A symbolic link at the end of the path is followed.
    follows: bool,
}

fn open_as(path: &Path, access: Access) -> io::Result<File> {
    // Looked at before it is opened, because opening some devices does something.
    check(&system::look(path, access)?)?;
    // Asked of the open file too: the path may name something else by now.
    let file = system::open(path, access)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(about: &Metadata) -> io::Result<()> {
    match () {
        () if about.is_file() => Ok(()),
        () if about.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        () => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}
