//! Detects that the number of an open file descriptor now belongs to another file, so that guard never writes
//! into a program's files.
//!
//! A program that becomes a daemon closes all descriptors. Without this check, guard could then write into
//! one of the program's files.

use core::ffi::c_int;
use core::mem::zeroed;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

/// Identity of the file behind a descriptor: device and inode; zeroes for a closed descriptor.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    device: AtomicU64,
    inode: AtomicU64,
    known: AtomicBool,
}

impl FileIdentity {
    pub(crate) const fn new() -> Self {
        Self { device: AtomicU64::new(0), inode: AtomicU64::new(0), known: AtomicBool::new(false) }
    }

    /// Remembers the file that this descriptor means now.
    pub(crate) fn remember(&self, descriptor: c_int) {
        let (device, inode) = file_of(descriptor).unwrap_or_default();
        self.device.store(device, Relaxed);
        self.inode.store(inode, Relaxed);
        self.known.store(true, Release);
    }

    /// True once [`Self::remember`] was called.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Acquire)
    }

    /// True if the descriptor still means the remembered file.
    pub(crate) fn is(&self, descriptor: c_int) -> bool {
        file_of(descriptor) == Some((self.device.load(Relaxed), self.inode.load(Relaxed)))
    }
}

/// Device and inode of the file that a descriptor means.
pub(crate) fn file_of(descriptor: c_int) -> Option<(u64, u64)> {
    // SAFETY: a structure of plain numbers, for which zeroes are valid.
    let mut stat: libc::stat = unsafe { zeroed() };
    // By number: glibc exports the function fstat since 2.33 only, and 2.31 is the floor. The kernel's
    // structure is libc's on all 64-bit machines.
    // SAFETY: the place is ours; a descriptor that is closed is refused.
    let result = unsafe { libc::syscall(libc::SYS_fstat, descriptor, &raw mut stat) };
    (result == 0).then_some((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_number_that_means_another_file_is_noticed() {
        let (first, second) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let identity = FileIdentity::new();
        assert!(!identity.is_known() && !identity.is(first.as_raw_fd()));
        identity.remember(first.as_raw_fd());
        assert!(identity.is_known() && identity.is(first.as_raw_fd()));
        assert!(!identity.is(second.as_raw_fd()) && !identity.is(-1));
        identity.remember(-1);
        assert!(identity.is_known() && !identity.is(first.as_raw_fd()) && !identity.is(-1));
    }
}
