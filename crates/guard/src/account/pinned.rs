//! Host memory that the program has pinned: the kernel can neither move nor swap it, and a board whose card shares the host's memory
//! has that much less for the card.
//!
//! Counted and never refused: what may be pinned is the kernel's to say. What guard pins itself, for a spilled range, is spilled and
//! not this.

use super::blocks::Blocks;
use super::{context, page};
use crate::driver::{CuResult, SUCCESS};
use crate::trace::{self, Event, Kind};

/// By their addresses, which are the program's own.
static PINNED: Blocks<Pinned> = Blocks::new();

#[derive(Clone, Copy, Debug)]
struct Pinned {
    size: u64,
    /// The context in which it was pinned, and with which it goes.
    context: usize,
    /// Its number in the trace.
    id: u64,
}

/// The driver has pinned so much at this address.
pub(crate) fn pinned(address: u64, size: u64) {
    let pinned = Pinned {
        size,
        context: context(),
        id: trace::number(),
    };
    page().pin(size);
    pinned.tell(Kind::Pin);
    PINNED.insert(address, pinned);
}

/// Lets go of what is pinned at this address, through `real`. An address that is unknown is the driver's to judge.
pub(crate) fn unpin(address: u64, real: impl FnOnce() -> CuResult) -> CuResult {
    let Some(pinned) = PINNED.remove(address) else {
        return real();
    };
    let result = real();
    if result == SUCCESS {
        pinned.gone();
    } else {
        PINNED.insert(address, pinned);
    }
    result
}

/// A context is gone, with what was pinned in it.
pub(crate) fn forget(context: usize) {
    PINNED.drain(|pinned| pinned.context == context, Pinned::gone);
}

impl Pinned {
    fn gone(self) {
        page().unpin(self.size);
        self.tell(Kind::Unpin);
    }

    fn tell(self, kind: Kind) {
        let event = Event {
            id: self.id,
            size: self.size,
            ..Event::default()
        };
        trace::emit(kind, event);
    }
}
