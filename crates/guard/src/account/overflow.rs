//! How much may be spilled, and how much of a request goes to the card first.
//!
//! `spill=BYTES` bounds what the process has in host memory at any time. Of a request that does not fit, the card takes what
//! the budget and the driver still have, less a little: after it, a program still asks for small things (a workspace, a counter)
//! and the driver for its own (a module that is loaded late, stacks of a larger kernel), which host memory cannot or should
//! not serve. Which of a program's requests are to overflow is [`order`](super::order)'s to say.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::UNLIMITED;

use super::order::{LARGE, Room};
use super::{host, vmm};
use crate::account::{CardIndex, card, tree, uuid};
use crate::arm;
use crate::ladder::Instead;

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
    card(index).raise_peaks();
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

/// Whether a request that the card has room for shall overflow all the same, for what comes after it (see [`order`]).
pub(crate) fn yields(index: CardIndex, size: u64, instead: Instead) -> bool {
    let options = arm::options();
    let may = options.spill.is_some() && !matches!(instead, Instead::Nothing);
    let may = may && (options.keep > 0 || size >= LARGE);
    // The driver is asked only by whom the answer matters to.
    if !may || !by_budget(index).holds_back_from(size) {
        return false;
    }
    let room = room(index);
    // What cannot be cut goes where the larger part of it would lie.
    let whole = matches!(instead, Instead::Memory(..));
    room.yields(size) && !(whole && room.head(size, 1) >= size / 2)
}

/// What the card has, and what will be asked of it.
pub(crate) fn room(index: CardIndex) -> Room {
    let (free, total) = vmm::memory_of(index.device()).unwrap_or((UNLIMITED, UNLIMITED));
    Room {
        total,
        free,
        ..by_budget(index)
    }
}

/// The same without the driver's word.
fn by_budget(index: CardIndex) -> Room {
    let (card, options) = (card(index), arm::options());
    let spilled = card.spilled.load(Relaxed);
    let asked = card.allocated.load(Relaxed).saturating_add(spilled);
    Room {
        budget: tree::budget(index),
        headroom: tree::headroom(index),
        total: UNLIMITED,
        free: UNLIMITED,
        spillable: options.spill.unwrap_or(0).saturating_sub(SPILLED.load(Relaxed)),
        held: asked.saturating_sub(card.context.load(Relaxed)),
        need: options.need_of(&uuid(card)),
        keep: options.keep,
    }
}
