//! The contexts of the process: where they are, what they take, and whether the plan wants them there.
//!
//! A context takes some hundred MiB of a card before the program has allocated anything, so it belongs to the budget. The driver
//! tells a card's free bytes only to those who have a context there, so the first one is measured with NVML, if the card has a
//! budget: by the process's own entry, or else by the difference that it made. Without a budget nobody is held to the figure, the
//! daemon asks NVML itself, and a program that asked for nothing does not get NVML loaded into it. With the context goes whatever was allocated in it.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_wire::options::{Contexts, Uuid};
use plimsoll_wire::page::{CARDS, Refusal, UNLIMITED};

use crate::account::blocks::BLOCKS;
use crate::account::{CardIndex, card, oom, pinned, tree, uuid};
use crate::arm;
use crate::hooks::arrays::ARRAYS;
use crate::lock::Lock;
use crate::say::say;
use crate::spill;

mod measure;
mod stack;

pub(crate) use measure::Before;

#[derive(Clone, Copy, Debug)]
struct Context {
    handle: usize,
    card: CardIndex,
    primary: bool,
}

static OPEN: Lock<Vec<Context>> = Lock::new(Vec::new());

/// Whether a context may not be opened on this card; says so, or only that it is outside the plan.
pub(crate) fn refused(index: CardIndex) -> bool {
    let options = arm::options();
    let card = card(index);
    let uuid = uuid(card);
    if options.contexts == Contexts::Leave || options.plans(&uuid) {
        return false;
    }
    static SAID: [AtomicBool; CARDS] = [const { AtomicBool::new(false) }; CARDS];
    let refuse = options.contexts == Contexts::Refuse;
    if !SAID[usize::from(index.number()) % CARDS].swap(true, Relaxed) {
        let act = if refuse { "refused" } else { "opened" };
        say!(
            "a context on card {} ({}), which is outside the plan, was {act}; asked for by",
            index.number(),
            Uuid(uuid)
        );
        stack::say();
    }
    if refuse {
        oom::record(index, Refusal::Context, 0, 0);
    }
    refuse
}

/// What is to be compared with, if the context about to be opened on this card has to be measured.
pub(crate) fn opening(index: CardIndex) -> Option<Before> {
    let first = !OPEN.hold().iter().any(|context| context.card == index);
    let limited = tree::budget(index) != UNLIMITED;
    (first && limited).then(|| Before::look(index)).flatten()
}

/// A context is there.
pub(crate) fn opened(handle: usize, index: CardIndex, primary: bool, before: Option<Before>) {
    {
        let mut open = OPEN.hold();
        if open.iter().any(|context| context.handle == handle) {
            return;
        }
        open.push(Context {
            handle,
            card: index,
            primary,
        });
    }
    if let Some(bytes) = before.and_then(Before::difference) {
        card(index).context.store(bytes, Relaxed);
        tree::charge(index, bytes);
    }
}

/// A context is gone, and all that was allocated in it.
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
        tree::give(gone.card, card(gone.card).context.swap(0, Relaxed));
    }
}

/// The primary context of this card is gone.
pub(crate) fn primary_closed(index: CardIndex) {
    let handle = {
        let open = OPEN.hold();
        let primary = open
            .iter()
            .find(|context| context.primary && context.card == index);
        primary.map(|context| context.handle)
    };
    if let Some(handle) = handle {
        closed(handle);
    }
}
