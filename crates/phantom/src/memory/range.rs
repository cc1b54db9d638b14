//! Memory range behind a buffer, and its owner.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::Handle;
use crate::phantom::CardState;

pub(super) struct Range {
    pub(super) start: Handle,
    size: usize,
    pub(super) card: Option<&'static CardState>,
    pub(super) number: u64,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Range {
    /// Maps a range; `None` where the address space or a limit on it is too small.
    pub(super) fn map(size: usize, protection: c_int, card: Option<&'static CardState>) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(null_mut(), size.max(1), protection, flags, -1, 0) };
        (start != libc::MAP_FAILED).then(|| Self {
            start,
            size,
            card,
            number: NUMBER.fetch_add(1, Relaxed),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(u64::MAX)
    }

    pub(super) fn place(&self) -> &str {
        self.card
            .map_or("CUDA_Host", |state| state.card.device.to_str().unwrap_or("CUDA"))
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, with this size, and the buffer that showed it to the engine is gone.
        unsafe { libc::munmap(self.start, self.size.max(1)) };
    }
}

// SAFETY: the range is only unmapped, by the caller that takes it out of the map.
unsafe impl Send for Range {}
