//! Records physical memory from `cuMemCreate`, with its handles and mappings.
//!
//! The card gets the memory back when no handle and no mapping is left.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_nostd::lock::Lock;

use super::spilled;
use crate::driver::{AllocationHandle, CuResult, DevicePointer, SUCCESS};
use crate::state::{CardIndex, ledger};
use crate::trace::{self, TraceEvent, TraceKind};

/// Place of a handle's memory: card or host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackingMemory {
    Card,
    /// Spilled, because the card did not have room for it.
    Host,
}

// Each piece of memory has a number of its own, because the driver may reuse a handle's value.
/// Memory of one `cuMemCreate`.
#[derive(Clone, Copy, Debug)]
struct PhysicalMemory {
    card: CardIndex,
    residence: BackingMemory,
    size: u64,
    handles: u32,
    mappings: u32,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    size: u64,
    id: u64,
}

#[derive(Debug)]
struct PhysicalTable {
    memories: BTreeMap<u64, PhysicalMemory>,
    /// Handles, and the number of the memory behind each.
    handles: BTreeMap<AllocationHandle, u64>,
    mappings: BTreeMap<DevicePointer, Mapping>,
}

static PHYSICAL: Lock<PhysicalTable> = Lock::new(PhysicalTable {
    memories: BTreeMap::new(),
    handles: BTreeMap::new(),
    mappings: BTreeMap::new(),
});

/// Spilled memories; while it is 0, look-ups are skipped.
static SPILLED: AtomicUsize = AtomicUsize::new(0);

/// Enters new memory, which is charged already.
pub(crate) fn created(handle: AllocationHandle, index: CardIndex, size: u64, residence: BackingMemory) {
    // Not the handle: the driver may reuse its value while this memory is still mapped.
    let id = trace::number();
    let memory = PhysicalMemory { card: index, residence, size, handles: 1, mappings: 0 };
    if residence == BackingMemory::Host {
        SPILLED.fetch_add(1, Relaxed);
    }
    {
        let mut physical = PHYSICAL.hold();
        physical.memories.insert(id, memory);
        physical.handles.insert(handle, id);
    }
    TraceEvent::on(index).of(id, size).emit(TraceKind::Map);
}

/// Counts one more reference to a handle: it was imported from this process, or retained from an address.
pub(crate) fn shared(handle: AllocationHandle, address: Option<DevicePointer>) {
    let mut physical = PHYSICAL.hold();
    let id = match address {
        Some(address) => physical.at(address),
        None => physical.handles.get(&handle).copied(),
    };
    physical.add_handle(handle, id);
}

/// Releases a handle through `real`. It is taken out before the driver can reuse its value.
pub(crate) fn release(handle: AllocationHandle, real: impl FnOnce() -> CuResult) -> CuResult {
    let id = PHYSICAL.hold().take_handle(handle);
    let result = real();
    if let Some(id) = id {
        if result != SUCCESS {
            PHYSICAL.hold().add_handle(handle, Some(id));
        }
        settle(id);
    }
    result
}

/// Enters a mapping of the handle's memory.
pub(crate) fn mapped(address: DevicePointer, size: u64, handle: AllocationHandle) {
    let mut physical = PHYSICAL.hold();
    if let Some(id) = physical.handles.get(&handle).copied()
        && let Some(memory) = physical.memories.get_mut(&id)
    {
        memory.mappings += 1;
        physical.mappings.insert(address, Mapping { size, id });
    }
}

/// Removes the mappings of a range through `real`. They are taken out before the driver can reuse the
/// addresses.
pub(crate) fn unmap(address: DevicePointer, size: u64, real: impl FnOnce() -> CuResult) -> CuResult {
    let inside: Vec<_> = {
        let mut physical = PHYSICAL.hold();
        let inside =
            |start: &DevicePointer, _: &mut Mapping| (address..address.saturating_add(size)).contains(start);
        physical.mappings.extract_if(address.., inside).collect()
    };
    let result = real();
    if result != SUCCESS {
        PHYSICAL.hold().mappings.extend(inside);
        return result;
    }
    for (_, mapping) in inside {
        if let Some(memory) = PHYSICAL.hold().memories.get_mut(&mapping.id) {
            memory.mappings -= 1;
        }
        settle(mapping.id);
    }
    result
}

/// The mappings of a range, if some of its memory is spilled.
pub(crate) fn pieces_if_spilled(address: DevicePointer, size: u64) -> Option<Vec<(DevicePointer, u64)>> {
    if SPILLED.load(Relaxed) == 0 {
        return None;
    }
    let physical = PHYSICAL.hold();
    let inside = physical.mappings.range(address..address.saturating_add(size));
    let spilled = |mapping: &Mapping| physical.residence(mapping.id) == Some(BackingMemory::Host);
    let any = inside.clone().any(|(_, mapping)| spilled(mapping));
    any.then(|| inside.map(|(start, mapping)| (*start, mapping.size)).collect())
}

/// The card on which the memory at an address was requested, if that memory is spilled.
pub(crate) fn spilled_at(address: DevicePointer) -> Option<CardIndex> {
    if SPILLED.load(Relaxed) == 0 {
        return None;
    }
    let physical = PHYSICAL.hold();
    let memory = physical.memories.get(&physical.at(address)?)?;
    (memory.residence == BackingMemory::Host).then_some(memory.card)
}

/// True if a handle's memory is spilled.
pub(crate) fn is_spilled(handle: AllocationHandle) -> bool {
    let physical = PHYSICAL.hold();
    let id = physical.handles.get(&handle);
    id.and_then(|id| physical.residence(*id)) == Some(BackingMemory::Host)
}

/// Returns memory that has neither handles nor mappings.
fn settle(id: u64) {
    let gone = {
        let mut physical = PHYSICAL.hold();
        let unheld = |memory: &&PhysicalMemory| memory.handles == 0 && memory.mappings == 0;
        match physical.memories.get(&id).filter(unheld).copied() {
            Some(memory) => {
                physical.memories.remove(&id);
                memory
            }
            None => return,
        }
    };
    match gone.residence {
        BackingMemory::Card => ledger::give(gone.card, gone.size),
        BackingMemory::Host => {
            SPILLED.fetch_sub(1, Relaxed);
            spilled::give(gone.card, gone.size);
        }
    }
    TraceEvent::on(gone.card).of(id, gone.size).emit(TraceKind::Unmap);
}

impl PhysicalTable {
    /// Counts one more reference of this handle to a memory.
    fn add_handle(&mut self, handle: AllocationHandle, id: Option<u64>) {
        if let Some(id) = id
            && let Some(memory) = self.memories.get_mut(&id)
        {
            memory.handles += 1;
            self.handles.insert(handle, id);
        }
    }

    /// Takes one reference of a handle out, and returns its memory.
    fn take_handle(&mut self, handle: AllocationHandle) -> Option<u64> {
        let id = self.handles.get(&handle).copied()?;
        let memory = self.memories.get_mut(&id)?;
        memory.handles -= 1;
        if memory.handles == 0 {
            self.handles.remove(&handle);
        }
        Some(id)
    }

    fn residence(&self, id: u64) -> Option<BackingMemory> {
        self.memories.get(&id).map(|memory| memory.residence)
    }

    /// The memory mapped at an address.
    fn at(&self, address: DevicePointer) -> Option<u64> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.size).then_some(mapping.id)
    }
}
