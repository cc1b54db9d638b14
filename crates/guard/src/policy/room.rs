//! Splits a memory request between card and host memory, if the program needs more than fits on the card.
//!
//! If the program's total need is known from a plan, the earliest requests go to host memory, otherwise the
//! last one. The option `keep` sets the room reserved for later requests by hand.

use plimsoll_wire::page::UNLIMITED;

use crate::policy::pieces::{down, up};

/// Left of the budget for requests that are too small to spill: cuBLAS workspaces, counters, tables.
const SMALL_REQUESTS: u64 = 32 << 20;
/// Left of the card for the driver itself: modules that it loads late, stacks of larger kernels.
const DRIVER: u64 = 128 << 20;
/// Divisor: neither is more than a 64th of the whole.
const PART: u64 = 64;
/// A smaller request costs more, in granules and bus traffic, than the room that it would make.
pub(crate) const LARGE: u64 = 8 << 20;

/// Room of a card within budget and driver limits, and the bytes that are still to be requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CardRoom {
    /// The whole budget, and its unclaimed part.
    pub(crate) budget: u64,
    pub(crate) headroom: u64,
    /// All bytes of the card and its free bytes, by the driver.
    pub(crate) total: u64,
    pub(crate) free: u64,
    /// Bytes that may still be spilled.
    pub(crate) spillable: u64,
    /// Bytes that the program holds on the card and in host memory, without its context.
    pub(crate) occupied: u64,
    /// Total of the program's requests, if the plan provides it.
    pub(crate) need: Option<u64>,
    /// Bytes of caches still to come that go to host memory before weights do.
    pub(crate) yielded: u64,
    /// Bytes that larger requests leave to smaller ones, by hand; 0 for none.
    pub(crate) keep: u64,
}

impl CardRoom {
    /// True if a request of `size` has to leave room for later ones.
    pub(crate) fn holds_back_from(self, size: u64) -> bool {
        self.later(size) > 0
    }

    /// True if a request that would fit overflows all the same, in favour of later ones.
    pub(crate) fn yields(self, size: u64) -> bool {
        let later = self.later(size);
        later > 0 && self.left() < size.saturating_add(later)
    }

    /// True if the program will request more than the card has.
    pub(crate) fn is_short(self) -> bool {
        self.need.is_some_and(|need| self.left() < need.saturating_sub(self.occupied))
    }

    /// True if the card has room for all of it now.
    pub(crate) fn has(self, size: u64) -> bool {
        size <= self.headroom.min(self.free)
    }

    /// The bytes of a request of `size` that go to the card, in whole granules.
    pub(crate) fn head(self, size: u64, granule: u64) -> u64 {
        // DECISION: the earliest requests overflow, because the GPU reads host memory slowly and llama.cpp
        // allocates weights, its least-read memory, first. Earlier blocks are never moved, because another
        // thread may be using them.

        // With a known total (`need`, from the plan), each request leaves room for all later ones:
        //
        //     small  = reserve for requests that are too small to split
        //     later  = need - bytes allocated before - size of this request - what caches to come give up
        //     left   = min(free budget - small, free bytes of the card - reserve for the driver)
        //     if left >= size + later, or the request is too small to split: the whole request is on the card
        //     otherwise: min(size, left - later) bytes are on the card, in whole granules
        //
        // So if O bytes of the need do not fit on the card, the first O requested bytes overflow, and no
        // others. The exception is a cache to come whose last positions nothing reads yet.
        let wanted = self.left().saturating_sub(self.later(size)).min(size);
        // If host memory cannot take the rest, the card has to give more than this request should have.
        let least = up(size.saturating_sub(down(self.spillable, granule)), granule);
        let wanted = down(wanted, granule);
        least.filter(|least| self.has(*least)).map_or(wanted, |least| least.max(wanted))
    }

    /// Bytes that are still to come after a request of `size`.
    fn later(self, size: u64) -> u64 {
        match (self.keep, self.need) {
            (0, Some(need)) if size >= LARGE => {
                let before = self.occupied.saturating_add(size);
                need.saturating_sub(before).saturating_sub(self.yielded.min(self.spillable))
            }
            (keep, _) if size > keep => keep.saturating_sub(self.small()),
            _ => 0,
        }
    }

    fn left(self) -> u64 {
        let within = |whole: u64, left: u64, kept: u64| match whole {
            UNLIMITED => UNLIMITED,
            _ => left.saturating_sub(kept),
        };
        let budget = within(self.budget, self.headroom, self.small());
        let driver = within(self.total, self.free, DRIVER.min(self.total / PART));
        budget.min(driver)
    }

    fn small(self) -> u64 {
        SMALL_REQUESTS.min(self.budget / PART)
    }
}

#[cfg(test)]
mod tests;
