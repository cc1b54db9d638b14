//! Lets small allocations share chunks of 2 MiB in the fake CUDA driver, as in the real one.
//!
//! Because of them, a card's used memory is more than the sum of the requests.

use std::collections::BTreeMap;

use crate::abi::{Context, Physical};
use crate::blocks::{GRANULE, Place};
use crate::code::Code;
use crate::driver::Driver;

/// Requests up to this size come from chunks.
pub(crate) const SMALL: u64 = 1 << 20;
/// All device addresses are multiples of this.
pub(crate) const ALIGNMENT: u64 = 512;

/// Chunks by their address.
#[derive(Debug, Default)]
pub(crate) struct Chunks(BTreeMap<u64, Chunk>);

#[derive(Debug)]
struct Chunk {
    context: Context,
    physical: Physical,
    /// Offset and length of what is in use.
    used: BTreeMap<u64, u64>,
}

impl Chunk {
    fn hole(&self, length: u64) -> Option<u64> {
        let mut at = 0;
        for (&start, &used) in &self.used {
            if start - at >= length {
                break;
            }
            at = start + used;
        }
        (at + length <= GRANULE).then_some(at)
    }
}

impl Driver {
    /// Address, block and offset in the block for a small allocation.
    pub(crate) fn take_small(&mut self, context: Context, length: u64) -> Result<(u64, Physical, u64), Code> {
        let length = length.next_multiple_of(ALIGNMENT);
        let roomy = |chunk: &Chunk| chunk.hole(length).filter(|_| chunk.context == context);
        let found = self.chunks.0.iter().find_map(|(&at, chunk)| Some((at, roomy(chunk)?)));
        let (at, offset) = match found {
            Some(found) => found,
            None => (self.new_chunk(context)?, 0),
        };
        let chunk = self.chunks.0.get_mut(&at).expect("it was found, or just made");
        chunk.used.insert(offset, length);
        Ok((at + offset, chunk.physical, offset))
    }

    fn new_chunk(&mut self, context: Context) -> Result<u64, Code> {
        let card = self.contexts.open[&context].card;
        let physical = self.new_block(Place::Card(card), GRANULE, false)?;
        let at = self.space.take(GRANULE, GRANULE, 0).inspect_err(|_| {
            let _ = self.release_handle(physical);
        })?;
        let chunk = Chunk { context, physical, used: BTreeMap::new() };
        self.chunks.0.insert(at, chunk);
        Ok(at)
    }

    /// Gives a part of a chunk back, and the chunk if it was the last.
    pub(crate) fn give_small(&mut self, address: u64) {
        let Some((&at, chunk)) = self.chunks.0.range_mut(..=address).next_back() else {
            return;
        };
        chunk.used.remove(&(address - at));
        if chunk.used.is_empty() {
            let physical = chunk.physical;
            self.chunks.0.remove(&at);
            let _ = self.release_handle(physical);
            let _ = self.space.give(at);
        }
    }
}
