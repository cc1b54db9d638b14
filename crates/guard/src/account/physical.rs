//! Physical memory: what `cuMemCreate` gave, and who still holds it.
//!
//! It is the card's again when nobody has a handle to it and nothing maps it any more; handles can be retained from an address,
//! mapped many times and released while mapped. So it is counted by its own number: the driver may give a released handle's value
//! to new memory while the old one is still mapped.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use super::{CardIndex, tree};
use crate::driver::{DevicePointer, Handle};
use crate::lock::Lock;
use crate::spill::budget;
use crate::trace::{self, Event};

/// Where the memory is that a program asked of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Card,
    /// Spilled: the card did not have it.
    Host,
}

/// One `cuMemCreate`.
#[derive(Clone, Copy, Debug)]
struct Memory {
    card: CardIndex,
    place: Place,
    size: u64,
    handles: u32,
    mappings: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    size: u64,
    id: u64,
}

#[derive(Debug)]
struct Physical {
    memories: BTreeMap<u64, Memory>,
    /// Which memory a handle means.
    handles: BTreeMap<Handle, u64>,
    mappings: BTreeMap<DevicePointer, Mapping>,
}

static PHYSICAL: Lock<Physical> = Lock::new(Physical {
    memories: BTreeMap::new(),
    handles: BTreeMap::new(),
    mappings: BTreeMap::new(),
});

/// Memories in host memory; without any, nobody need look for one.
static SPILLED: AtomicUsize = AtomicUsize::new(0);

/// New memory, which is accounted for already.
pub(crate) fn created(handle: Handle, index: CardIndex, size: u64, place: Place) {
    let id = trace::number();
    let memory = Memory {
        card: index,
        place,
        size,
        handles: 1,
        mappings: 0,
    };
    if place == Place::Host {
        SPILLED.fetch_add(1, Relaxed);
    }
    {
        let mut physical = PHYSICAL.hold();
        physical.memories.insert(id, memory);
        physical.handles.insert(handle, id);
    }
    let event = Event {
        id,
        size,
        ..Event::on(index)
    };
    trace::emit(trace::Kind::Map, event);
}

/// One more right to release a handle: it was imported from ourselves, or retained from an address.
pub(crate) fn shared(handle: Handle, address: Option<DevicePointer>) {
    let mut physical = PHYSICAL.hold();
    let id = match address {
        Some(address) => physical.at(address),
        None => physical.handles.get(&handle).copied(),
    };
    if let Some(id) = id
        && let Some(memory) = physical.memories.get_mut(&id)
    {
        memory.handles += 1;
        physical.handles.insert(handle, id);
    }
}

/// A handle about to be released; what `released` or `kept` gets back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    handle: Handle,
    id: u64,
}

/// Takes the handle out before the driver can give its value to somebody else.
pub(crate) fn leaving(handle: Handle) -> Option<Leaving> {
    let mut physical = PHYSICAL.hold();
    let id = physical.handles.get(&handle).copied()?;
    let memory = physical.memories.get_mut(&id)?;
    memory.handles -= 1;
    if memory.handles == 0 {
        physical.handles.remove(&handle);
    }
    Some(Leaving { handle, id })
}

/// The driver did not release it.
pub(crate) fn kept(leaving: Leaving) {
    let mut physical = PHYSICAL.hold();
    if let Some(memory) = physical.memories.get_mut(&leaving.id) {
        memory.handles += 1;
        physical.handles.insert(leaving.handle, leaving.id);
    }
}

/// The driver released it.
pub(crate) fn released(leaving: Leaving) {
    settle(leaving.id);
}

/// The handle's memory can be reached at this address.
pub(crate) fn mapped(address: DevicePointer, size: u64, handle: Handle) {
    let mut physical = PHYSICAL.hold();
    if let Some(id) = physical.handles.get(&handle).copied()
        && let Some(memory) = physical.memories.get_mut(&id)
    {
        memory.mappings += 1;
        physical.mappings.insert(address, Mapping { size, id });
    }
}

/// Takes out the mappings of a range before the driver can give the addresses to somebody else; for `unmapped` or `remapped`.
pub(crate) fn unmapping(address: DevicePointer, size: u64) -> Vec<(DevicePointer, Mapping)> {
    let mut physical = PHYSICAL.hold();
    let end = address.saturating_add(size);
    let inside: Vec<_> = physical
        .mappings
        .range(address..end)
        .map(|(start, mapping)| (*start, *mapping))
        .collect();
    for (start, _) in &inside {
        physical.mappings.remove(start);
    }
    inside
}

/// The driver did not unmap them.
pub(crate) fn remapped(mappings: Vec<(DevicePointer, Mapping)>) {
    PHYSICAL.hold().mappings.extend(mappings);
}

/// The driver unmapped them.
pub(crate) fn unmapped(mappings: Vec<(DevicePointer, Mapping)>) {
    for (_, mapping) in mappings {
        if let Some(memory) = PHYSICAL.hold().memories.get_mut(&mapping.id) {
            memory.mappings -= 1;
        }
        settle(mapping.id);
    }
}

/// The mappings of a range, if some of its memory is spilled.
pub(crate) fn pieces_if_spilled(address: DevicePointer, size: u64) -> Option<Vec<(DevicePointer, u64)>> {
    if SPILLED.load(Relaxed) == 0 {
        return None;
    }
    let physical = PHYSICAL.hold();
    let inside = physical.mappings.range(address..address.saturating_add(size));
    let spilled = |mapping: &Mapping| physical.place(mapping.id) == Some(Place::Host);
    let any = inside.clone().any(|(_, mapping)| spilled(mapping));
    any.then(|| inside.map(|(start, mapping)| (*start, mapping.size)).collect())
}

/// The card that was asked for the memory at an address, if that memory is spilled.
pub(crate) fn spilled_at(address: DevicePointer) -> Option<CardIndex> {
    if SPILLED.load(Relaxed) == 0 {
        return None;
    }
    let physical = PHYSICAL.hold();
    let memory = physical.memories.get(&physical.at(address)?)?;
    (memory.place == Place::Host).then_some(memory.card)
}

/// Whether a handle's memory is spilled.
pub(crate) fn is_spilled(handle: Handle) -> bool {
    let physical = PHYSICAL.hold();
    let id = physical.handles.get(&handle);
    id.and_then(|id| physical.place(*id)) == Some(Place::Host)
}

/// Gives memory back that nobody holds.
fn settle(id: u64) {
    let gone = {
        let mut physical = PHYSICAL.hold();
        let unheld = |memory: &&Memory| memory.handles == 0 && memory.mappings == 0;
        match physical.memories.get(&id).filter(unheld).copied() {
            Some(memory) => {
                physical.memories.remove(&id);
                memory
            }
            None => return,
        }
    };
    match gone.place {
        Place::Card => tree::give(gone.card, gone.size),
        Place::Host => {
            SPILLED.fetch_sub(1, Relaxed);
            budget::give(gone.card, gone.size);
        }
    }
    let event = Event {
        id,
        size: gone.size,
        ..Event::on(gone.card)
    };
    trace::emit(trace::Kind::Unmap, event);
}

impl Physical {
    fn place(&self, id: u64) -> Option<Place> {
        self.memories.get(&id).map(|memory| memory.place)
    }

    /// The memory mapped at an address.
    fn at(&self, address: DevicePointer) -> Option<u64> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.size).then_some(mapping.id)
    }
}
