//! How much may be spilled, and how much of a request goes to the card first.
//!
//! `spill=BYTES` bounds what the process has in host memory at any time. Of a request that does not fit, the card takes what
//! the budget and the driver still have, less a little: after it, a program still asks for small things (a workspace, a counter)
//! and the driver for its own (a module that is loaded late, stacks of a larger kernel), which host memory cannot or should
//! not serve. `keep=BYTES` makes that little as large as the program's scratch, and holds for what would just fit too.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::UNLIMITED;

use super::host;
use crate::account::{CardIndex, card};
use crate::arm;
use crate::ladder::pieces::down;

/// Left of the budget for requests that are too small to spill.
const SMALL_REQUESTS: u64 = 32 << 20;
/// Left of the card for the driver itself.
const DRIVER: u64 = 128 << 20;
/// Neither is more than this part of the whole.
const PART: u64 = 64;

static SPILLED: AtomicU64 = AtomicU64::new(0);

/// Takes bytes of what may be spilled; false, and nothing taken, if they are too many for `spill` or for the host.
pub(crate) fn take(index: CardIndex, bytes: u64) -> bool {
    let most = arm::options().spill.unwrap_or(0);
    let more = |spilled: u64| spilled.checked_add(bytes).filter(|sum| *sum <= most);
    let taken = SPILLED.fetch_update(Relaxed, Relaxed, more).is_ok() && {
        let given = host::has(bytes);
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

/// Counts bytes that may lie in host memory whatever `spill` says.
pub(crate) fn charge(index: CardIndex, bytes: u64) {
    SPILLED.fetch_add(bytes, Relaxed);
    card(index).spilled.fetch_add(bytes, Relaxed);
    card(index).confirm();
}

/// Gives back what [`take`] took or [`charge`] counted.
pub(crate) fn give(index: CardIndex, bytes: u64) {
    lower(&SPILLED, bytes);
    lower(&card(index).spilled, bytes);
}

/// Never below none: what is given back was taken, unless somebody else writes on our page.
pub(crate) fn lower(counter: &AtomicU64, bytes: u64) {
    let _ = counter.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_sub(bytes)));
}

/// Whether a request that the budget has room for shall overflow all the same, for what comes after it.
pub(crate) fn keeps(index: CardIndex, size: u64) -> bool {
    let options = arm::options();
    let short = |headroom: u64| headroom != UNLIMITED && headroom < size.saturating_add(options.keep);
    options.spill.is_some() && options.keep > 0 && size > options.keep && short(card(index).headroom())
}

/// What a card still has, by both who may refuse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Of the budget: all of it, and what is left.
    pub(crate) budget: u64,
    pub(crate) headroom: u64,
    /// Of the card, by the driver's word: all of it, and what is free.
    pub(crate) total: u64,
    pub(crate) free: u64,
    /// What `keep` asks to be left of the budget.
    pub(crate) keep: u64,
}

impl Room {
    /// The bytes of a request of `size` that go to the card, in whole granules.
    pub(crate) fn head(self, size: u64, granule: u64) -> u64 {
        let within = |whole: u64, left: u64, kept: u64| match whole {
            UNLIMITED => UNLIMITED,
            _ => left.saturating_sub(kept),
        };
        let small = SMALL_REQUESTS.min(self.budget / PART);
        let kept = if size > self.keep {
            self.keep.max(small)
        } else {
            small
        };
        let budget = within(self.budget, self.headroom, kept);
        let driver = within(self.total, self.free, DRIVER.min(self.total / PART));
        down(size.min(budget).min(driver), granule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const GRANULE: u64 = 2 * MIB;

    #[test]
    fn the_card_takes_what_both_limits_have_less_what_small_requests_and_the_driver_need() {
        let room = Room {
            budget: 4 * GIB,
            headroom: 500 * MIB,
            total: 80 * GIB,
            free: 10 * GIB,
            keep: 0,
        };
        assert_eq!(room.head(GIB, GRANULE), 468 * MIB);
        let kept = Room {
            keep: 200 * MIB,
            ..room
        };
        assert_eq!(kept.head(GIB, GRANULE), 300 * MIB);
        assert_eq!(kept.head(100 * MIB, GRANULE), 100 * MIB);
        let full = Room {
            free: 300 * MIB,
            ..room
        };
        assert_eq!(full.head(GIB, GRANULE), 172 * MIB);
        let unlimited = Room {
            budget: UNLIMITED,
            headroom: UNLIMITED,
            ..full
        };
        assert_eq!(unlimited.head(GIB, GRANULE), 172 * MIB);
        let unknown = Room {
            total: UNLIMITED,
            free: UNLIMITED,
            ..unlimited
        };
        assert_eq!(unknown.head(GIB + 1, GRANULE), GIB);
    }

    #[test]
    fn small_limits_keep_a_small_part() {
        let room = Room {
            budget: 64 * MIB,
            headroom: 20 * MIB,
            total: GIB,
            free: GIB,
            keep: 0,
        };
        assert_eq!(room.head(GIB, GRANULE), 18 * MIB);
        let none = Room {
            headroom: MIB,
            ..room
        };
        assert_eq!(none.head(GIB, GRANULE), 0);
    }
}
