//! Which requests overflow: those that come first.
//!
//! DECISION: what is in host memory is read over the bus as often as the kernels read it, so what overflows must be what is read
//! least. llama.cpp asks for its memory in the order of rising heat: weights (a token reads each byte once), KV cache (attention
//! reads it once for each group of heads), compute buffer and pools (written and read by every operator). So where it is known
//! what a program will ask for in all (`need`, from the plan), a request leaves room for all that is still to come:
//!
//! ```text
//! later = need - asked before - this        left = min(budget - allocated, free - the driver's) - small
//! whole on the card      if left >= this + later, or if this is too small to be worth a cut
//! on the card otherwise  head = min(this, left - later), in whole granules; the rest in host memory
//! ```
//!
//! Let B be what the requests may have of the card less `small`, and O = need - B. If O <= 0 nothing is cut. Else the first
//! request gives min(O, its size), after which left = later holds for every request behind it until O is used up: so the first O
//! bytes that are asked for overflow, and no others. The KV cache overflows only where O is more than all weights, the compute
//! buffer only where it is more than weights and KV cache; and what is left of the card at the end is `small` and less
//! than a granule for each cut. Each card has its own need, budget and books, so several cards are several such sums.
//!
//! A need that is wrong by less than `small`, less a granule for each cut, moves none of this: a plan that is short takes from
//! `small`, one that is long leaves that much more empty. Without a need nobody knows what is still to come, and to hold room back for it would slow a program that fits;
//! the last comer overflows then. (To move earlier blocks to host memory when a later request does not fit would need no
//! foresight, but a kernel may run on them that another thread has just launched, and guard does not stand in launches.)
//! `keep` is the same by hand: requests larger than it leave it to smaller ones, always.

use plimsoll_wire::page::UNLIMITED;

use crate::ladder::pieces::{down, up};

/// Left of the budget for requests that are too small to spill.
const SMALL_REQUESTS: u64 = 32 << 20;
/// Left of the card for the driver itself.
const DRIVER: u64 = 128 << 20;
/// Neither is more than this part of the whole.
const PART: u64 = 64;
/// A request below this costs more in granules and in heat than it would make room.
pub(super) const LARGE: u64 = 8 << 20;

/// What a card still has, by both who may refuse, and what will be asked of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Of the budget: all of it, and what is left.
    pub(crate) budget: u64,
    pub(crate) headroom: u64,
    /// Of the card, by the driver's word: all of it, and what is free.
    pub(crate) total: u64,
    pub(crate) free: u64,
    /// What host memory may still take.
    pub(crate) spillable: u64,
    /// What the program has asked for and holds, on the card and in host memory, without its context.
    pub(crate) held: u64,
    /// What it will ask for in all, where that is known.
    pub(crate) need: Option<u64>,
    /// What a larger request is to leave, by hand; 0 for nothing.
    pub(crate) keep: u64,
}

impl Room {
    /// Whether anything is still to come after a request of `size` that it has to leave room for.
    pub(crate) fn holds_back_from(self, size: u64) -> bool {
        self.later(size) > 0
    }

    /// Whether a request that would fit shall overflow all the same, for what comes after it.
    pub(crate) fn yields(self, size: u64) -> bool {
        let later = self.later(size);
        later > 0 && self.left() < size.saturating_add(later)
    }

    /// Whether the card has room for all of it now.
    pub(crate) fn has(self, size: u64) -> bool {
        size <= self.headroom.min(self.free)
    }

    /// The bytes of a request of `size` that go to the card, in whole granules.
    pub(crate) fn head(self, size: u64, granule: u64) -> u64 {
        let wanted = self.left().saturating_sub(self.later(size)).min(size);
        // Host memory may not have the rest; then the card gives what it has.
        let least = up(size.saturating_sub(down(self.spillable, granule)), granule);
        let wanted = down(wanted, granule);
        least
            .filter(|least| self.has(*least))
            .map_or(wanted, |least| least.max(wanted))
    }

    /// What is still to come after a request of `size`.
    fn later(self, size: u64) -> u64 {
        match (self.keep, self.need) {
            (0, Some(need)) if size >= LARGE => need.saturating_sub(self.held.saturating_add(size)),
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
