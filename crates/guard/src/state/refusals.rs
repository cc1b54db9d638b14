//! Refusals, as the page remembers them.

use core::sync::atomic::Ordering::{Relaxed, Release};

use plimsoll_wire::page::{OOMS, Refusal};

use super::{CardIndex, card, page, tree};
use crate::clock;

/// Enters a refusal of so many bytes; `free` is the driver's word on the card.
pub(crate) fn record(index: CardIndex, refusal: Refusal, asked: u64, free: u64) {
    let (page, card) = (page(), card(index));
    let number = page.oom_count.fetch_add(1, Relaxed);
    let oom = &page.ooms[usize::try_from(number).unwrap_or(0) % OOMS];
    // A reader of half an entry sees no number that it knows.
    oom.sequence.store(0, Release);
    oom.time.store(clock::now(), Relaxed);
    oom.asked.store(asked, Relaxed);
    oom.allocated.store(tree::held(index), Relaxed);
    oom.budget.store(tree::budget(index), Relaxed);
    oom.free.store(free, Relaxed);
    oom.card.store(u32::from(index.number()), Relaxed);
    oom.refusal.store(code(refusal), Relaxed);
    oom.sequence.store(number + 1, Release);
    card.ooms.fetch_add(1, Relaxed);
}

#[allow(clippy::as_conversions, reason = "the code that the enum declares")]
const fn code(refusal: Refusal) -> u32 {
    refusal as u32
}
