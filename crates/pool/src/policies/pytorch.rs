//! Model of PyTorch's caching allocator, with and without expandable segments.
//!
//! The model makes the allocator's decisions but does not reproduce its speed. Options that are off by
//! default are left out.

use alloc::collections::BTreeSet;

use crate::device::{Address, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy};

mod chunks;
mod expandable;

use chunks::{ChunkKind, ChunkMap, ChunkState};
use expandable::SegmentRanges;

const LEAST: u64 = 512;
const SMALL: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE_SEGMENT: u64 = 20 << 20;
/// Size from which a segment has the size of its request, in steps of [`SMALL_SEGMENT`].
const MEASURED: u64 = 10 << 20;

/// Source of memory from the driver: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PytorchMode {
    #[default]
    Native,
    Expandable,
}

// Source: `c10/cuda/CUDACachingAllocator.cpp: round_size, get_allocation_size, get_free_block, should_split,
// alloc_block, free_block, release_cached_blocks, try_allocate_expandable_block, map_block @ pytorch
// 001074d`.
//
// DECISION: the limit on splitting, garbage collection, `record_stream` and the private pools of graphs are
// left out, because they are off by default or not in traces.
/// Model of PyTorch's caching allocator.
#[derive(Clone, Debug, Default)]
pub struct Pytorch {
    mode: PytorchMode,
    chunks: ChunkMap,
    ranges: SegmentRanges,
    streams: BTreeSet<Stream>,
    reserved: u64,
    live: u64,
}

impl Pytorch {
    pub fn new(mode: PytorchMode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// An idle chunk of at least `size` bytes, from the driver if it has to be.
    fn find(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        kind: ChunkKind,
        stream: Stream,
    ) -> Result<Address, OutOfMemory> {
        if let Some(found) = self.chunks.best_fit(kind, stream, size) {
            return Ok(found);
        }
        // alloc_block fails, release_cached_blocks, alloc_block again: the order of
        // CUDACachingAllocator::malloc.
        self.grow(device, size, kind, stream).or_else(|_| {
            self.release(device);
            self.grow(device, size, kind, stream)
        })
    }

    fn grow(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        kind: ChunkKind,
        stream: Stream,
    ) -> Result<Address, OutOfMemory> {
        if self.mode == PytorchMode::Expandable {
            let ranges = &mut self.ranges;
            return ranges.grow(&mut self.chunks, device, &mut self.reserved, size, kind, stream);
        }
        let segment = match kind {
            ChunkKind::Small => SMALL_SEGMENT,
            // get_allocation_size: medium sizes share segments of 20 MiB, large ones get their own.
            ChunkKind::Large if size < MEASURED => LARGE_SEGMENT,
            ChunkKind::Large => size.next_multiple_of(SMALL_SEGMENT),
        };
        let address = device.allocate(segment)?;
        self.reserved += segment;
        self.chunks.insert(address, segment, address, kind, stream, ChunkState::Idle);
        Ok(address)
    }

    /// True if the rest of a chunk is large enough to split it.
    fn worth_splitting(&self, kind: ChunkKind, left: u64) -> bool {
        match (self.mode, kind) {
            (PytorchMode::Expandable, _) | (_, ChunkKind::Small) => left >= LEAST,
            // should_split: large blocks are split only if more than 1 MiB is left, so that segments do not
            // fragment.
            (PytorchMode::Native, ChunkKind::Large) => left > SMALL,
        }
    }

    /// Gives back every segment or page that is idle, once the card is done.
    fn release(&mut self, device: &mut dyn PoolDevice) -> u64 {
        // cudaFree is not permitted during a capture.
        if self.streams.iter().any(|&stream| device.capturing(stream)) {
            return 0;
        }
        for &stream in &self.streams {
            device.finish(stream);
        }
        let before = self.reserved;
        match self.mode {
            PytorchMode::Native => {
                for (address, size) in self.chunks.take_idle_segments() {
                    device.free(address);
                    self.reserved -= size;
                }
            }
            PytorchMode::Expandable => self.ranges.release(&mut self.chunks, device, &mut self.reserved),
        }
        before - self.reserved
    }
}

impl Policy for Pytorch {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        asked: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory> {
        let refused = OutOfMemory { asked, free: device.available() };
        // Far from the end of u64: segments are rounded up again.
        let size = asked.max(1).checked_next_multiple_of(LEAST).filter(|size| *size < 1 << 60);
        let size = size.ok_or(refused)?;
        let kind = if size <= SMALL { ChunkKind::Small } else { ChunkKind::Large };
        // Kept for the wait before a release, which has to cover every stream that ever had a block.
        self.streams.insert(stream);
        let address = self.find(device, size, kind, stream)?;
        let left = self.chunks.size(address).saturating_sub(size);
        if self.worth_splitting(kind, left) {
            self.chunks.split(address, size);
        }
        self.chunks.set(address, ChunkState::Lent { asked });
        self.live += asked;
        Ok(Block { address, size: asked })
    }

    /// Returns the block to the stream of its allocation, whatever stream this is.
    fn deallocate(&mut self, _: &mut dyn PoolDevice, block: Block, _: Stream) {
        if let Some(asked) = self.chunks.lent(block.address) {
            self.chunks.set(block.address, ChunkState::Idle);
            // Joined at once, as in free_block; freed blocks of other streams stay apart by their stream.
            self.chunks.join(block.address);
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
    use alloc::vec::Vec;

    const STREAM: Stream = Stream(0);
    const MIB: u64 = 1 << 20;

    fn device(bytes: u64) -> Simulated {
        Simulated::new(bytes, 2 * MIB)
    }

    fn allocate(pool: &mut Pytorch, device: &mut Simulated, sizes: &[u64]) -> Vec<Block> {
        let allocate = |&size| pool.allocate(device, size, STREAM).unwrap();
        sizes.iter().map(allocate).collect()
    }

    #[test]
    fn segments_are_2_mib_20_mib_or_made_to_measure() {
        let mut device = device(1 << 30);
        let mut pool = Pytorch::default();
        let sizes = [1, MIB, MIB, MIB + 1, 9 * MIB, 10 * MIB, 11 * MIB];
        let blocks = allocate(&mut pool, &mut device, &sizes);
        assert_eq!(device.driver_sizes(), [2 * MIB, 2 * MIB, 20 * MIB, 10 * MIB, 12 * MIB],);
        for block in blocks {
            pool.deallocate(&mut device, block, STREAM);
        }
        assert_eq!(pool.live(), 0);
        assert_eq!(pool.release(&mut device), 46 * MIB);
        assert_eq!((device.reserved(), device.violations().len()), (0, 0));
    }

    #[test]
    fn a_large_block_is_not_split_for_a_mib() {
        let mut device = device(1 << 30);
        let mut pool = Pytorch::default();
        let block = allocate(&mut pool, &mut device, &[12 * MIB])[0];
        pool.deallocate(&mut device, block, STREAM);
        allocate(&mut pool, &mut device, &[11 * MIB, 2 * MIB]);
        assert_eq!(device.driver_sizes(), [12 * MIB, 20 * MIB]);
    }

    #[test]
    fn when_the_driver_refuses_idle_segments_go_back_and_it_is_asked_again() {
        let mut device = device(40 * MIB);
        let mut pool = Pytorch::default();
        let block = allocate(&mut pool, &mut device, &[20 * MIB])[0];
        device.launch(STREAM, 100, &[block]);
        pool.deallocate(&mut device, block, STREAM);
        allocate(&mut pool, &mut device, &[30 * MIB]);
        assert_eq!(device.violations(), [], "it waits for the card before it gives anything back");
        assert_eq!((pool.reserved(), device.calls().free), (30 * MIB, 1));
        assert!(pool.allocate(&mut device, 20 * MIB, STREAM).is_err());
    }

    #[test]
    fn expandable_segments_grow_by_pages_and_give_idle_pages_back() {
        let mut device = device(200 * MIB);
        let mut pool = Pytorch::new(PytorchMode::Expandable);
        let first = allocate(&mut pool, &mut device, &[30 * MIB])[0];
        pool.deallocate(&mut device, first, STREAM);
        let second = allocate(&mut pool, &mut device, &[50 * MIB])[0];
        assert_eq!(second.address, first.address, "the idle front is used and extended");
        assert_eq!(device.driver_sizes(), [20 * MIB; 3]);
        pool.deallocate(&mut device, second, STREAM);
        allocate(&mut pool, &mut device, &[512]);
        assert_eq!(pool.release(&mut device), 60 * MIB);
        assert_eq!(pool.reserved(), 2 * MIB);
        assert_eq!((device.reserved(), device.violations()), (2 * MIB, &[][..]));
    }

    #[test]
    fn other_streams_have_blocks_of_their_own() {
        let mut device = device(1 << 30);
        let mut pool = Pytorch::default();
        let block = pool.allocate(&mut device, 1024, Stream(1)).unwrap();
        pool.deallocate(&mut device, block, Stream(1));
        let other = pool.allocate(&mut device, 1024, Stream(2)).unwrap();
        assert_ne!(block.address, other.address);
    }
}
