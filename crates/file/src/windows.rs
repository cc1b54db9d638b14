//! Opens a file on Windows: refuses names of devices such as `CON`, and can open a link itself instead of its
//! target.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::{Component, Path, Prefix};

use super::{Access, FileUsers};

/// Variable of the user's home directory.
pub(super) const HOME: &str = "USERPROFILE";

/// `FILE_FLAG_OPEN_REPARSE_POINT` (CreateFileW): the file is the link, which is no regular file.
const OPEN_LINK: u32 = 0x0020_0000;

/// Names that are devices in every folder, with any extension (Naming Files, Paths, and Namespaces).
const DEVICES: &[&str] = &["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
/// The same with one digit behind them.
const NUMBERED: &[&str] = &["COM", "LPT"];

/// Its name alone is looked at first: even to ask a device what it is opens it.
pub(super) fn look(path: &Path, access: Access) -> io::Result<Metadata> {
    if is_device(path) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is the name of a device"));
    }
    if access.follows { fs::metadata(path) } else { fs::symlink_metadata(path) }
}

pub(super) fn open(path: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(!access.writes).write(access.writes);
    if !access.follows {
        options.custom_flags(OPEN_LINK);
    }
    options.open(path)
}

/// A new file, which must not be there. The folder says who may read it.
pub(super) fn create(path: &Path, users: FileUsers<'_>) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    if let FileUsers::Of(about) = users {
        file.set_permissions(about.permissions()).inspect_err(|_| drop(fs::remove_file(path)))?;
    }
    Ok(file)
}

/// The system reads a file on a disk in one call, unless it ends before.
pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let read = file.seek_read(bytes, offset)?;
    if read == bytes.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

pub(super) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let written = file.seek_write(bytes, offset)?;
    if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn is_device(path: &Path) -> bool {
    let is_of_devices = matches!(
        path.components().next(),
        Some(Component::Prefix(prefix)) if matches!(prefix.kind(), Prefix::DeviceNS(_))
    );
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    // `NUL.txt`, `NUL ` and `NUL:` are the device too.
    let name = name.split(['.', ':']).next().unwrap_or_default().trim_end();
    let has_number = |rest: &str| rest.chars().count() == 1 && rest != "0";
    let is_numbered = |device: &&str| name.strip_prefix(*device).is_some_and(has_number);
    is_of_devices || DEVICES.contains(&name) || NUMBERED.iter().any(is_numbered)
}
