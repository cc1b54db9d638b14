//! Counts the host memory that the program has pinned.
//!
//! Pinned memory is never refused. On a machine whose GPU shares the host's memory, it leaves less for the
//! card.

use crate::driver::CuResult;
use crate::driver_guard::context;
use crate::state::address_map::AddressMap;
use crate::state::page;
use crate::trace::{self, TraceEvent, TraceKind};

/// Pinned memory by its host address.
static PINNED: AddressMap<Pinned> = AddressMap::new();

#[derive(Clone, Copy, Debug)]
struct Pinned {
    size: u64,
    /// The context in which it was pinned, and with which it goes.
    context: usize,
    /// Its number in the trace.
    id: u64,
}

/// Counts memory that the driver has pinned at this address.
pub(crate) fn pinned(address: u64, size: u64) {
    let pinned = Pinned { size, context: context(), id: trace::number() };
    page().pin(size);
    pinned.notify(TraceKind::Pin);
    PINNED.insert(address, pinned);
}

/// Unpins the memory at this address through `real`. An unknown address is passed on.
pub(crate) fn unpin(address: u64, real: impl FnOnce() -> CuResult) -> CuResult {
    PINNED.free(address, real, Pinned::gone)
}

/// Forgets what was pinned in a context that is destroyed.
pub(crate) fn forget(context: usize) {
    PINNED.drain(|pinned| pinned.context == context, Pinned::gone);
}

impl Pinned {
    fn gone(self) {
        page().unpin(self.size);
        self.notify(TraceKind::Unpin);
    }

    fn notify(self, kind: TraceKind) {
        TraceEvent::default().of(self.id, self.size).emit(kind);
    }
}
