//! Counts this process's spilled bytes: GPU memory requests that guard placed in host memory.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::host_memory;
use crate::settings;
use crate::state::{CardIndex, card};

static SPILLED: AtomicU64 = AtomicU64::new(0);

/// Claims bytes of host memory; false, and nothing claimed, if they pass `spill` or the host does not have
/// them.
pub(crate) fn take(index: CardIndex, bytes: u64) -> bool {
    let most = settings::options().spill.unwrap_or(0);
    let more = |spilled: u64| spilled.checked_add(bytes).filter(|sum| *sum <= most);
    let taken = SPILLED.fetch_update(Relaxed, Relaxed, more).is_ok() && {
        // The option first: reading /proc/meminfo costs a hundred times as much.
        let given = host_memory::has(bytes);
        if !given {
            lower(&SPILLED, bytes);
        }
        given
    };
    if taken {
        card(index).spilled.fetch_add(bytes, Relaxed);
    }
    taken
}

/// Counts bytes that may be in host memory regardless of `spill`.
pub(crate) fn charge(index: CardIndex, bytes: u64) {
    SPILLED.fetch_add(bytes, Relaxed);
    card(index).spilled.fetch_add(bytes, Relaxed);
    card(index).raise_peaks();
}

/// Returns what [`take`] claimed or [`charge`] counted.
pub(crate) fn give(index: CardIndex, bytes: u64) {
    lower(&SPILLED, bytes);
    lower(&card(index).spilled, bytes);
}

/// Bytes that may still be spilled.
pub(crate) fn left() -> u64 {
    let most = settings::options().spill.unwrap_or(0);
    most.saturating_sub(SPILLED.load(Relaxed))
}

/// Subtracts and saturates at zero. Only another writer on our page could make a counter smaller than the
/// returned size.
pub(crate) fn lower(counter: &AtomicU64, bytes: u64) {
    let _ = counter.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_sub(bytes)));
}
