//! Borders in spilled ranges, where device memory ends and host memory begins, for the hooks of copies.
//!
//! Copies are split at a border only if the driver refuses to copy across it.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use crate::state::ranges;

/// No border: address 0, which no copy crosses.
pub(crate) const NONE: u64 = 0;

static MATTER: AtomicBool = AtomicBool::new(false);

/// True if copies have to be split.
pub(crate) fn matter() -> bool {
    MATTER.load(Relaxed) && !ranges::none()
}

/// Remembers that a driver refuses copies across a border.
pub(crate) fn must_not_be_crossed() {
    MATTER.store(true, Relaxed);
}

/// The border in the range that holds `address`.
pub(crate) fn of(address: u64) -> u64 {
    ranges::find(address, |range| range.border()).flatten().unwrap_or(NONE)
}
