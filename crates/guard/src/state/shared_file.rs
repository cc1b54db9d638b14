//! Opens, sizes, maps and reads the files in shared memory that guard shares with other processes.

use core::ffi::{CStr, c_int};
use core::ptr::null_mut;

use plimsoll_wire::tree::TreeLedger;

const OWNER_ONLY: libc::mode_t = 0o600;

/// Opens the ledger at this path, and makes a missing one.
pub(super) fn ledger(path: &CStr) -> Option<&'static TreeLedger> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: a C string; O_CREAT takes the mode.
    let file = unsafe { libc::open(path.as_ptr(), flags, OWNER_ONLY) };
    if file < 0 {
        return None;
    }
    let tree = if has_room(file) { tree(file) } else { None };
    // SAFETY: our own descriptor, which a mapping does not need.
    unsafe { libc::close(file) };
    tree
}

/// A ledger in private memory.
pub(super) fn private() -> Option<&'static TreeLedger> {
    tree(-1)
}

/// Allocates the bytes of the ledger; false if the disk does not have them. Touching a mapped byte without a
/// block is SIGBUS.
fn has_room(file: c_int) -> bool {
    let Ok(length) = libc::off_t::try_from(TreeLedger::SIZE) else {
        return false;
    };
    // Not posix_fallocate: where the file system has no fallocate it writes to the file, which another
    // process may be using.
    // SAFETY: our own descriptor. Bytes that are there already stay as they are.
    unsafe {
        libc::fallocate(file, 0, 0, length) == 0
            || (errno() == libc::EOPNOTSUPP && libc::ftruncate(file, length) == 0)
    }
}

fn tree(file: c_int) -> Option<&'static TreeLedger> {
    let mapped = map(file, TreeLedger::SIZE);
    // SAFETY: so many bytes, aligned as memory is, never unmapped; zeroes are an empty ledger and every
    // number is a valid one.
    (!mapped.is_null()).then(|| unsafe { &*mapped.cast::<TreeLedger>() })
}

/// Maps a file, or with -1 anonymous memory; null on failure.
pub(super) fn map(file: c_int, size: usize) -> *mut libc::c_void {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = if file < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
    // SAFETY: a new mapping.
    let mapped = unsafe { libc::mmap(null_mut(), size, access, flags, file, 0) };
    if mapped == libc::MAP_FAILED { null_mut() } else { mapped }
}

/// Reads the beginning of a file; the number of bytes read.
pub(crate) fn read(path: &CStr, bytes: &mut [u8]) -> Option<usize> {
    // SAFETY: a C string, room for the bytes, and a descriptor that is closed once.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let read = libc::read(file, bytes.as_mut_ptr().cast(), bytes.len());
        libc::close(file);
        usize::try_from(read).ok()
    }
}

pub(super) fn errno() -> c_int {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}
