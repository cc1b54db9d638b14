//! Records the device memory blocks that the program has allocated and not freed, by address or handle.

use core::sync::atomic::Ordering::Relaxed;

use super::pools;
use crate::driver_guard;
use crate::state::address_map::AddressMap;
use crate::state::{CardIndex, card, ledger};
use crate::trace::{self, TraceEvent, TraceKind};

/// A live block of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceBlock {
    pub(crate) card: CardIndex,
    pub(crate) size: u64,
    pub(crate) kind: BlockKind,
    /// The context in which it was allocated, and with which it goes.
    pub(crate) context: usize,
    /// Its number in the trace.
    pub(crate) id: u64,
}

impl DeviceBlock {
    /// Enters a block that the driver has given in this thread's context.
    pub(crate) fn new(index: CardIndex, size: u64, kind: BlockKind, stream: usize) -> Self {
        let id = trace::number();
        let event = TraceEvent::on(index).of(id, size);
        TraceEvent { stream, ..event }.emit(TraceKind::Alloc);
        card(index).allocations.fetch_add(1, Relaxed);
        Self { card: index, size, kind, context: driver_guard::context(), id }
    }

    /// Returns its bytes to the card; `stream` is the stream of the free, or 0.
    pub(crate) fn gone(self, stream: usize) {
        match self.kind {
            BlockKind::Linear => ledger::give(self.card, self.size),
            BlockKind::Managed => {}
            // The block went back to its pool, which may keep the memory.
            BlockKind::Pooled => pools::refresh(self.card),
        }
        let event = TraceEvent::on(self.card).of(self.id, self.size);
        TraceEvent { stream, ..event }.emit(TraceKind::Free);
    }
}

/// Way in which a block was allocated, which determines how it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Linear,
    /// `cuMemAllocManaged`: the driver moves it; not counted against the budget.
    Managed,
    /// `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`: its pool is counted, not the block.
    Pooled,
}

/// Device memory by its address.
pub(crate) static BLOCKS: AddressMap<DeviceBlock> = AddressMap::new();
/// Arrays by their handle.
pub(crate) static ARRAYS: AddressMap<DeviceBlock> = AddressMap::new();
