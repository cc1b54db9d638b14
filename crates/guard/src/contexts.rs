//! Tracks the CUDA contexts of the process and their sizes, and refuses contexts on cards that it was not
//! given.
//!
//! A context takes some hundred MiB of a card, so it counts against the budget. Only contexts on a card with
//! a budget are measured.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_nostd::lock::Lock;
use plimsoll_wire::options::{Contexts, Uuid};
use plimsoll_wire::page::{CARDS, Refusal, UNLIMITED};

use crate::account::blocks::{ARRAYS, BLOCKS};
use crate::account::pinned;
use crate::say::say;
use crate::state::{CardIndex, card, ledger, refusals, uuid};
use crate::{settings, spill};

mod nvml_measure;
mod stack;

pub(crate) use nvml_measure::MemoryBefore;

#[derive(Clone, Copy, Debug)]
struct OpenContext {
    handle: usize,
    card: CardIndex,
    primary: bool,
}

static OPEN: Lock<Vec<OpenContext>> = Lock::new(Vec::new());

/// True if a context may not be opened on this card. A context outside the plan is reported in any case, once
/// per card.
pub(crate) fn refused(index: CardIndex) -> bool {
    let options = settings::options();
    let card = card(index);
    let uuid = uuid(card);
    if options.contexts == Contexts::Leave || options.plans(&uuid) {
        return false;
    }
    static STATED: [AtomicBool; CARDS] = [const { AtomicBool::new(false) }; CARDS];
    let refuse = options.contexts == Contexts::Refuse;
    if !STATED[index.place()].swap(true, Relaxed) {
        let act = if refuse { "refused" } else { "opened" };
        say!(
            "a CUDA context on card {} ({}), which this program may not use, was {act}; the call stack \
            follows",
            index.number(),
            Uuid(uuid)
        );
        stack::say();
    }
    if refuse {
        refusals::record(index, Refusal::Context, 0, 0);
    }
    refuse
}

/// The used memory of a card, if the context that is about to be opened has to be measured.
pub(crate) fn opening(index: CardIndex) -> Option<MemoryBefore> {
    // DECISION: contexts on cards without a budget are not measured, so that other programs do not load NVML.
    let first = !OPEN.hold().iter().any(|context| context.card == index);
    let limited = ledger::budget(index) != UNLIMITED;
    (first && limited).then(|| MemoryBefore::look(index)).flatten()
}

/// Enters a context that was opened.
pub(crate) fn opened(handle: usize, index: CardIndex, primary: bool, before: Option<MemoryBefore>) {
    {
        let mut open = OPEN.hold();
        if open.iter().any(|context| context.handle == handle) {
            return;
        }
        open.push(OpenContext { handle, card: index, primary });
    }
    // A primary context is retained many times and returned above; only its first retain has a figure.
    if let Some(bytes) = before.and_then(MemoryBefore::difference) {
        card(index).context.store(bytes, Relaxed);
        ledger::charge(index, bytes);
    }
}

/// Releases everything that was allocated in a context that is destroyed.
pub(crate) fn closed(handle: usize) {
    let (gone, last) = {
        let mut open = OPEN.hold();
        let Some(place) = open.iter().position(|context| context.handle == handle) else {
            return;
        };
        let gone = open.swap_remove(place);
        (gone, !open.iter().any(|context| context.card == gone.card))
    };
    spill::forget(handle);
    pinned::forget(handle);
    for blocks in [&BLOCKS, &ARRAYS] {
        blocks.drain(|block| block.context == handle, |block| block.gone(0));
    }
    if last {
        ledger::give(gone.card, card(gone.card).context.swap(0, Relaxed));
    }
}

/// The same for the primary context of a card.
pub(crate) fn primary_closed(index: CardIndex) {
    let handle = {
        let open = OPEN.hold();
        let primary = open.iter().find(|context| context.primary && context.card == index);
        primary.map(|context| context.handle)
    };
    if let Some(handle) = handle {
        closed(handle);
    }
}
