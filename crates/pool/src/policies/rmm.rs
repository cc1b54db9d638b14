//! Model of RAPIDS RMM's pool (`pool_memory_resource`).
//!
//! A request takes the smallest block of its stream, else a block freed by another stream, else the pool
//! doubles in size. The model makes RMM's decisions but does not reproduce its speed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::device::{Address, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy};

const ALIGNMENT: u64 = 256;

/// A block that is idle or was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RmmBlock {
    address: Address,
    size: u64,
    /// It begins an allocation of the driver and is never joined with the block before it.
    head: bool,
}

/// Idle blocks by address and by size, with the lowest address first. RMM searches a list with the same
/// result.
#[derive(Clone, Debug, Default)]
struct Idle {
    pieces: BTreeMap<Address, RmmBlock>,
    sizes: BTreeSet<(u64, Address)>,
}

impl Idle {
    fn take(&mut self, size: u64) -> Option<RmmBlock> {
        let (_, address) = *self.sizes.range((size, Address(0))..).next()?;
        self.remove(address)
    }

    /// Inserts a block and joins it with its neighbours.
    fn insert(&mut self, piece: RmmBlock) {
        let piece = match self.pieces.get(&piece.address.offset(piece.size)) {
            Some(next) if !next.head => self.joined(piece, next.address),
            _ => piece,
        };
        let before = self.pieces.range(..piece.address).next_back();
        let piece = match before.map(|(_, before)| *before) {
            Some(before) if !piece.head && before.address.offset(before.size) == piece.address => {
                self.remove(before.address);
                RmmBlock { size: before.size + piece.size, ..before }
            }
            _ => piece,
        };
        self.sizes.insert((piece.size, piece.address));
        self.pieces.insert(piece.address, piece);
    }

    /// A piece together with the one that begins at `next`.
    fn joined(&mut self, piece: RmmBlock, next: Address) -> RmmBlock {
        let more = self.remove(next).map_or(0, |next| next.size);
        RmmBlock { size: piece.size + more, ..piece }
    }

    fn remove(&mut self, address: Address) -> Option<RmmBlock> {
        let piece = self.pieces.remove(&address)?;
        self.sizes.remove(&(piece.size, address));
        Some(piece)
    }
}

// Source: `cpp/src/mr/detail/pool_memory_resource_impl.cpp,
// cpp/include/rmm/mr/detail/coalescing_free_list.hpp, stream_ordered_memory_resource.hpp @ rmm 06ddb24`.
/// Model of RMM's pool.
#[derive(Clone, Debug, Default)]
pub struct RmmPool {
    idle: BTreeMap<Stream, Idle>,
    lent: BTreeMap<Address, (RmmBlock, u64)>,
    reserved: u64,
    live: u64,
}

impl RmmPool {
    fn piece(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<RmmBlock, OutOfMemory> {
        if let Some(piece) = self.idle.entry(stream).or_default().take(size) {
            return Ok(piece);
        }
        // After the stream's own list, as in RMM (get_block_from_other_stream).
        self.take_over(device, stream);
        match self.idle.entry(stream).or_default().take(size) {
            Some(piece) => Ok(piece),
            None => self.expand(device, size),
        }
    }

    /// Takes over blocks that other streams have freed, after their work.
    fn take_over(&mut self, device: &mut dyn PoolDevice, stream: Stream) {
        if device.capturing(stream) {
            return;
        }
        let others: Vec<Stream> = self
            .idle
            .iter()
            .filter(|(other, idle)| {
                **other != stream && !idle.pieces.is_empty() && !device.capturing(**other)
            })
            .map(|(other, _)| *other)
            .collect();
        for other in others {
            // The other stream may still use the blocks, so this stream waits for it on the card.
            let event = device.record(other);
            device.order(stream, event);
            device.forget(event);
            let taken = self.idle.remove(&other).unwrap_or_default();
            let own = self.idle.entry(stream).or_default();
            taken.pieces.into_values().for_each(|piece| own.insert(piece));
        }
    }

    fn expand(&mut self, device: &mut dyn PoolDevice, size: u64) -> Result<RmmBlock, OutOfMemory> {
        let mut refused = OutOfMemory { asked: size, free: device.available() };
        let mut attempt = size.max(self.reserved);
        while attempt >= size {
            match device.allocate(attempt) {
                Ok(address) => {
                    self.reserved += attempt;
                    return Ok(RmmBlock { address, size: attempt, head: true });
                }
                Err(error) => refused = error,
            }
            // Halved down to the request itself, as try_to_expand does.
            if attempt == size {
                break;
            }
            attempt = (attempt / 2).next_multiple_of(ALIGNMENT).max(size);
        }
        Err(refused)
    }
}

impl Policy for RmmPool {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        asked: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory> {
        let size = asked
            .max(1)
            .checked_next_multiple_of(ALIGNMENT)
            .ok_or(OutOfMemory { asked, free: device.available() })?;
        let piece = self.piece(device, size, stream)?;
        // allocate_from_block: the rest stays in the list of the stream that asked.
        if piece.size > size {
            self.idle.entry(stream).or_default().insert(RmmBlock {
                address: piece.address.offset(size),
                size: piece.size - size,
                head: false,
            });
        }
        self.lent.insert(piece.address, (RmmBlock { size, ..piece }, asked));
        self.live += asked;
        Ok(Block { address: piece.address, size: asked })
    }

    fn deallocate(&mut self, _: &mut dyn PoolDevice, block: Block, stream: Stream) {
        if let Some((piece, asked)) = self.lent.remove(&block.address) {
            self.idle.entry(stream).or_default().insert(piece);
            self.live -= asked;
        }
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn live(&self) -> u64 {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::Simulated;

    const STREAM: Stream = Stream(0);

    #[test]
    fn it_doubles_and_joins_what_comes_back() {
        let mut device = Simulated::new(1 << 30, 256);
        let mut pool = RmmPool::default();
        let blocks: Vec<Block> =
            [1024, 512, 512, 512].map(|size| pool.allocate(&mut device, size, STREAM).unwrap()).to_vec();
        assert_eq!(device.driver_sizes(), [1024, 1024, 2048]);
        for block in blocks {
            pool.deallocate(&mut device, block, STREAM);
        }
        let whole: Vec<u64> = pool.idle[&STREAM].pieces.values().map(|piece| piece.size).collect();
        assert_eq!(whole.len(), 3, "what came in three allocations is never joined across them");
        assert_eq!((whole.iter().sum::<u64>(), pool.live()), (4096, 0));
    }

    #[test]
    fn where_the_driver_refuses_it_asks_for_half_down_to_what_is_needed() {
        let mut device = Simulated::new(8192, 256);
        let mut pool = RmmPool::default();
        pool.allocate(&mut device, 5120, STREAM).unwrap();
        pool.allocate(&mut device, 1024, STREAM).unwrap();
        assert_eq!(device.driver_sizes(), [5120, 2560]);
        assert!(pool.allocate(&mut device, 2048, STREAM).is_err());
    }

    #[test]
    fn another_stream_gets_what_was_freed_behind_an_event() {
        let mut device = Simulated::new(1 << 30, 256);
        let mut pool = RmmPool::default();
        let block = pool.allocate(&mut device, 4096, Stream(1)).unwrap();
        device.launch(Stream(1), 100, &[block]);
        pool.deallocate(&mut device, block, Stream(1));
        let again = pool.allocate(&mut device, 4096, Stream(2)).unwrap();
        assert_eq!(again.address, block.address);
        device.launch(Stream(2), 100, &[again]);
        assert_eq!(device.violations(), []);
        pool.deallocate(&mut device, again, Stream(2));
        assert_eq!((device.reserved(), device.violations().len()), (4096, 0));
    }
}
