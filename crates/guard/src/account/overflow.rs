//! Computes how much of a request the card can hold, from the budget, the driver's figures and the options.
//!
//! [`crate::policy::room`] uses it to split a request between card and host memory.

use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::UNLIMITED;

use super::{Substitute, caches, spilled};
use crate::policy::room::{CardRoom, LARGE};
use crate::state::{CardIndex, card, ledger, uuid};
use crate::{driver_guard, settings};

/// True if a request that the card has room for overflows all the same, in favour of later ones.
pub(crate) fn yields(index: CardIndex, size: u64, substitute: Substitute) -> bool {
    let options = settings::options();
    let may = options.spill.is_some() && !matches!(substitute, Substitute::Nothing);
    let may = may && (options.keep > 0 || size >= LARGE);
    // The driver is asked last, and only where its answer matters: every allocation passes here.
    if !may || !by_budget(index, size).holds_back_from(size) {
        return false;
    }
    let room = room(index, size);
    // Weights that may have to leave the card later are mapped in granules from the start.
    if matches!(substitute, Substitute::Range(..)) && caches::are_weights(index, size) && room.is_short() {
        return true;
    }
    // Such memory cannot be divided, so it goes where its larger part would lie.
    let whole = matches!(substitute, Substitute::Memory(..) | Substitute::Request);
    room.yields(size) && !(whole && room.head(size, 1) >= size / 2)
}

/// Room of a card for a request of `size`, by budget and driver.
pub(crate) fn room(index: CardIndex, size: u64) -> CardRoom {
    let (free, total) = driver_guard::memory_of(index.device()).unwrap_or((UNLIMITED, UNLIMITED));
    CardRoom { total, free, ..by_budget(index, size) }
}

/// Room of a card by the budget alone.
fn by_budget(index: CardIndex, size: u64) -> CardRoom {
    let (card, options) = (card(index), settings::options());
    let spilled = card.spilled.load(Relaxed);
    let requested = card.allocated.load(Relaxed).saturating_add(spilled);
    CardRoom {
        budget: ledger::budget(index),
        headroom: ledger::headroom(index),
        total: UNLIMITED,
        free: UNLIMITED,
        spillable: spilled::left(),
        // The plan's need is without the context.
        occupied: requested.saturating_sub(card.context.load(Relaxed)),
        need: options.need_of(&uuid(card)),
        yielded: if size >= LARGE { caches::yielded(index, size) } else { 0 },
        keep: options.keep,
    }
}
