//! Records the latest refused allocations in the shared-memory file that the daemon reads.

use core::sync::atomic::Ordering::{Relaxed, Release};

use plimsoll_wire::page::{OOMS, Refusal};

use super::{CardIndex, card, ledger, page};
use crate::clock;

/// Records the refusal of `asked` bytes; `free` is the free memory that the driver reported for the card.
pub(crate) fn record(index: CardIndex, refusal: Refusal, requested: u64, free: u64) {
    let (page, card) = (page(), card(index));
    let number = page.oom_count.fetch_add(1, Relaxed);
    let oom = &page.ooms[usize::try_from(number).unwrap_or(0) % OOMS];
    // Sequence 0 while the fields change: a reader that meets half an entry ignores it.
    oom.sequence.store(0, Release);
    oom.time.store(clock::now(), Relaxed);
    oom.requested.store(requested, Relaxed);
    oom.allocated.store(ledger::occupied(index), Relaxed);
    oom.budget.store(ledger::budget(index), Relaxed);
    oom.free.store(free, Relaxed);
    oom.card.store(u32::from(index.number()), Relaxed);
    oom.refusal.store(refusal.code(), Relaxed);
    oom.sequence.store(number + 1, Release);
    card.ooms.fetch_add(1, Relaxed);
}
