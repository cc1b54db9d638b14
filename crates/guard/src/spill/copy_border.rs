//! Whether the borders of spilled ranges matter to copies, and where they are.
//!
//! They matter once a probe has found a driver that does not copy across one; until then, and for ever on the others, a copy
//! costs one more load and branch.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use super::ranges;

/// No border: an address that no copy crosses.
pub(crate) const NONE: u64 = 0;

static MATTER: AtomicBool = AtomicBool::new(false);

pub(crate) fn matter() -> bool {
    MATTER.load(Relaxed) && !ranges::none()
}

/// A driver refuses to cross them.
pub(crate) fn must_not_be_crossed() {
    MATTER.store(true, Relaxed);
}

/// The border in the range that holds `address`.
pub(crate) fn of(address: u64) -> u64 {
    ranges::find(address, |range| range.border())
        .flatten()
        .unwrap_or(NONE)
}
