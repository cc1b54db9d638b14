//! Records address reservations that guard granted smaller than the program requested.
//!
//! llama.cpp's memory pool reserves 32 GiB of addresses, which Tegra's driver refuses (llama.cpp #29142). A
//! mapping beyond the smaller reservation fails with out of memory.

use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Release};

use plimsoll_nostd::lock::Lock;

/// The smallest size that is tried; nothing smaller is worth having, and no reservation of this size or less
/// is shrunk.
const SMALLEST: u64 = 2 << 30;

/// Sizes to try after `asked` was refused: halves, down to 2 GiB.
pub(crate) fn smaller(requested: u64) -> impl Iterator<Item = u64> {
    core::iter::successors(Some(requested / 2), |size| Some(size / 2)).take_while(|size| *size >= SMALLEST)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reservation {
    base: u64,
    requested: u64,
    given: u64,
}

static SHRUNK: Lock<Vec<Reservation>> = Lock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Records that only `given` of `asked` bytes from `base` on were reserved.
pub(crate) fn remember(base: u64, requested: u64, given: u64) {
    let mut shrunk = SHRUNK.hold();
    shrunk.push(Reservation { base, requested, given });
    COUNT.store(shrunk.len(), Release);
}

/// The size to pass to the driver when the program frees `size` bytes of addresses at `base`. Forgets the
/// reservation.
pub(crate) fn freed(base: u64, size: u64) -> u64 {
    // Without the lock: nearly every process has none.
    if COUNT.load(Acquire) == 0 {
        return size;
    }
    let mut shrunk = SHRUNK.hold();
    let whole = |reservation: &Reservation| reservation.base == base && reservation.requested == size;
    let given = shrunk.iter().position(whole).map_or(size, |at| shrunk.swap_remove(at).given);
    COUNT.store(shrunk.len(), Release);
    given
}

/// True if a mapping is in a shrunken reservation, beyond the part that was granted.
pub(crate) fn beyond(at: u64, size: u64) -> bool {
    let out = |reservation: &Reservation| {
        let Some(offset) = at.checked_sub(reservation.base) else {
            return false;
        };
        offset < reservation.requested && offset.saturating_add(size) > reservation.given
    };
    COUNT.load(Acquire) != 0 && SHRUNK.hold().iter().any(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_refused_reservation_is_halved_down_to_two_gibibytes() {
        let tries = |requested: u64| smaller(requested).map(|size| size / GIB).collect::<Vec<_>>();
        assert_eq!(tries(32 * GIB), [16, 8, 4, 2]);
        assert_eq!(tries(4 * GIB), [2]);
        assert_eq!(tries(2 * GIB), [0; 0]);
        assert_eq!(tries(0), [0; 0]);
    }

    #[test]
    fn reservations_are_freed_under_their_requested_size() {
        let base = 0x7000_0000_0000;
        remember(base, 32 * GIB, 8 * GIB);
        assert!(!beyond(base, 8 * GIB));
        assert!(beyond(base, 8 * GIB + 1));
        assert!(beyond(base + 8 * GIB, GIB));
        assert!(!beyond(base + 32 * GIB, GIB));
        assert!(!beyond(base - GIB, GIB));
        assert_eq!(freed(base, GIB), GIB);
        assert_eq!(freed(base + GIB, 32 * GIB), 32 * GIB);
        assert_eq!(freed(base, 32 * GIB), 8 * GIB);
        assert_eq!(freed(base, 32 * GIB), 32 * GIB);
        assert!(!beyond(base + 8 * GIB, GIB));
    }
}
