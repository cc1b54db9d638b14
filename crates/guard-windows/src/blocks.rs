//! Allocations of the program, by their addresses, and its physical chunks, by their handles.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cards::CardIndex;
use crate::driver::{CuResult, DevicePointer, SUCCESS};

/// Allocations: card and bytes.
static BLOCKS: Mutex<BTreeMap<DevicePointer, (CardIndex, u64)>> = Mutex::new(BTreeMap::new());
static CHUNKS: Mutex<Chunks> = Mutex::new(Chunks { live: BTreeMap::new(), mapped: BTreeMap::new() });

/// Locks a table. A panic ends the process, so a table is never left half changed.
pub(crate) fn hold<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn insert(pointer: DevicePointer, card: CardIndex, size: u64) {
    hold(&BLOCKS).insert(pointer, (card, size));
}

/// Frees a block through `real`. Its entry is taken first, because the driver may give its address to another
/// thread at once.
pub(crate) fn free(pointer: DevicePointer, real: impl FnOnce() -> CuResult) -> CuResult {
    let block = hold(&BLOCKS).remove(&pointer);
    let code = real();
    if let Some((card, size)) = block {
        if code == SUCCESS {
            card.give(size);
        } else {
            insert(pointer, card, size);
        }
    }
    code
}

/// Physical memory (`cuMemCreate`). It lives until its handle is released and its last mapping is gone.
#[derive(Debug)]
struct Chunks {
    live: BTreeMap<u64, Chunk>,
    /// Handles by the addresses of their mappings.
    mapped: BTreeMap<DevicePointer, u64>,
}

#[derive(Debug)]
struct Chunk {
    card: CardIndex,
    size: u64,
    /// Mappings, and one for a handle that was not released.
    uses: u32,
}

pub(crate) fn chunk_created(handle: u64, card: CardIndex, size: u64) {
    hold(&CHUNKS).live.insert(handle, Chunk { card, size, uses: 1 });
}

pub(crate) fn chunk_released(handle: u64) {
    hold(&CHUNKS).less(handle);
}

pub(crate) fn chunk_mapped(at: DevicePointer, handle: u64) {
    let mut chunks = hold(&CHUNKS);
    if let Some(chunk) = chunks.live.get_mut(&handle) {
        chunk.uses += 1;
        chunks.mapped.insert(at, handle);
    }
}

/// Forgets the mappings in a range, which the driver takes apart whole.
pub(crate) fn chunks_unmapped(at: DevicePointer, size: u64) {
    let mut chunks = hold(&CHUNKS);
    let gone: Vec<(DevicePointer, u64)> =
        chunks.mapped.range(at..at.saturating_add(size)).map(|(place, handle)| (*place, *handle)).collect();
    for (place, handle) in gone {
        chunks.mapped.remove(&place);
        chunks.less(handle);
    }
}

impl Chunks {
    fn less(&mut self, handle: u64) {
        let Some(chunk) = self.live.get_mut(&handle) else { return };
        chunk.uses -= 1;
        if chunk.uses == 0 {
            chunk.card.give(chunk.size);
            self.live.remove(&handle);
        }
    }
}
