//! Maps guard's two shared files on Windows: the page on which a process reports its memory figures, and the
//! ledger by which a tree of processes shares one budget.
//!
//! DECISION: the ledger is a file in the folder of the pages and not a section with a name. The folder is
//! private to its user, it ends with `plimsoll run`, and readers of the files are Linux's.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::ptr::null;

use windows_sys::Win32::Foundation::CloseHandle;
use windows_sys::Win32::System::Memory::{CreateFileMappingW, FILE_MAP_WRITE, MapViewOfFile, PAGE_READWRITE};

/// `FILE_ATTRIBUTE_TEMPORARY`: the system keeps the file in memory as long as it can.
const TEMPORARY: u32 = 0x100;

/// Maps a file, which is extended with zeroes to `size` bytes, for the life of this process.
pub(crate) fn map(path: &Path, size: usize) -> io::Result<*mut u8> {
    // Not truncated: another process of the tree may use it already.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).attributes(TEMPORARY);
    view(&options.open(path)?, size)
}

fn view(file: &File, size: usize) -> io::Result<*mut u8> {
    let bytes = u32::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: an open file; a mapping that is larger extends it.
    let section =
        unsafe { CreateFileMappingW(file.as_raw_handle(), null(), PAGE_READWRITE, 0, bytes, null()) };
    if section.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the section has so many bytes.
    let view = unsafe { MapViewOfFile(section, FILE_MAP_WRITE, 0, 0, size) };
    let error = io::Error::last_os_error();
    // The view keeps the section.
    // SAFETY: a handle of ours.
    unsafe { CloseHandle(section) };
    if view.Value.is_null() { Err(error) } else { Ok(view.Value.cast()) }
}
