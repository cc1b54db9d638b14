//! Models ggml's pool for cards without virtual memory management (`ggml-cuda.cu:ggml_cuda_pool_leg @
//! b8799`).
//!
//! A request takes the smallest idle block that is large enough, else a new block of 1.05 times the size. The
//! pool keeps up to 256 idle blocks.

use alloc::collections::BTreeMap;

use crate::device::{Address, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy};

const SLOTS: usize = 256;
/// Excess from which a block is not used: `best_diff = 1ull << 36` in the original.
const MISFIT: u64 = 1 << 36;
const ROUNDING: u64 = 256;

/// Differences between builds of ggml, and proposed changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgmlLegacyOptions {
    /// Size of a new block in percent of the request: 105, and 200 in PR 22193.
    pub growth: u64,
    /// Frees all idle blocks when the driver refuses, then tries once more.
    pub flush: bool,
}

impl Default for GgmlLegacyOptions {
    fn default() -> Self {
        Self { growth: 105, flush: false }
    }
}

/// A block obtained from the driver; size 0 means an empty slot.
#[derive(Clone, Copy, Debug, Default)]
struct LegacyBlock {
    address: Address,
    size: u64,
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    occupied: LegacyBlock,
    requested: u64,
}

// DECISION: the model is exact, defects included, so that driver requests are predicted to the byte. The
// search examines every slot, because its time is part of the model. `flush` (release at a refusal): the same
// @ b10605 (PR 22155).
/// Model of ggml's legacy pool.
#[derive(Clone, Debug)]
pub struct GgmlLegacy {
    options: GgmlLegacyOptions,
    slots: [LegacyBlock; SLOTS],
    /// The original hands the block's size to its caller and gets it back.
    lent: BTreeMap<Address, LiveBlock>,
    reserved: u64,
    live: u64,
}

impl Default for GgmlLegacy {
    fn default() -> Self {
        Self::new(GgmlLegacyOptions::default())
    }
}

impl GgmlLegacy {
    pub fn new(options: GgmlLegacyOptions) -> Self {
        Self { options, slots: [LegacyBlock::default(); SLOTS], lent: BTreeMap::new(), reserved: 0, live: 0 }
    }

    /// A pool that holds idle blocks already: its slots in order, the first one first.
    pub fn holding(
        options: GgmlLegacyOptions,
        device: &mut dyn PoolDevice,
        sizes: &[u64],
    ) -> Result<Self, OutOfMemory> {
        let mut pool = Self::new(options);
        for (slot, &size) in pool.slots.iter_mut().zip(sizes) {
            let address = device.allocate(size)?;
            *slot = LegacyBlock { address, size };
            pool.reserved += size;
        }
        Ok(pool)
    }

    /// The sizes of the idle blocks, in the order of their slots.
    pub fn idle(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().map(|slot| slot.size).filter(|&size| size > 0)
    }

    /// Takes the best fitting idle block out of its slot.
    fn take(&mut self, size: u64) -> Option<LegacyBlock> {
        let mut best: Option<&mut LegacyBlock> = None;
        let mut least = MISFIT;
        for slot in &mut self.slots {
            // Unsigned as in the original; a smaller slot wraps to a huge excess and is rejected by the next
            // line.
            let over = slot.size.wrapping_sub(size);
            if slot.size >= size && slot.size > 0 && over < least {
                least = over;
                best = Some(slot);
                if over == 0 {
                    break;
                }
            }
        }
        best.map(core::mem::take)
    }

    fn grow(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<LegacyBlock, OutOfMemory> {
        // look_ahead_size = (size_t) (1.05 * size), rounded up to 256.
        let larger = size.checked_mul(self.options.growth).map(|size| size / 100);
        let ahead = larger.and_then(|size| size.checked_next_multiple_of(ROUNDING));
        let ahead = ahead.ok_or(OutOfMemory { requested: size, free: device.available() })?;
        let address = match device.allocate(ahead) {
            Err(_) if self.options.flush => {
                // cudaFree synchronises the device.
                device.finish(stream);
                self.flush(device);
                device.allocate(ahead)?
            }
            allocated => allocated?,
        };
        self.reserved += ahead;
        Ok(LegacyBlock { address, size: ahead })
    }

    fn flush(&mut self, device: &mut dyn PoolDevice) {
        for slot in self.slots.iter_mut().filter(|slot| slot.size > 0) {
            let occupied = core::mem::take(slot);
            device.free(occupied.address);
            self.reserved -= occupied.size;
        }
    }
}

impl Policy for GgmlLegacy {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory> {
        let occupied = match self.take(size) {
            Some(occupied) => occupied,
            None => self.grow(device, size, stream)?,
        };
        self.lent.insert(occupied.address, LiveBlock { occupied, requested: size });
        self.live += size;
        Ok(Block { address: occupied.address, size })
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        let Some(lent) = self.lent.remove(&block.address) else {
            return;
        };
        self.live -= lent.requested;
        // The first empty slot, as in the original: the order of slots decides later searches.
        if let Some(empty) = self.slots.iter_mut().find(|slot| slot.size == 0) {
            *empty = lent.occupied;
            return;
        }
        device.finish(stream);
        device.free(lent.occupied.address);
        self.reserved -= lent.occupied.size;
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
    use crate::runner::simulated::Simulated;
    use alloc::vec::Vec;

    const STREAM: Stream = Stream(0);

    fn take_and_return(pool: &mut GgmlLegacy, device: &mut Simulated, sizes: &[u64]) {
        let blocks: Vec<Block> =
            sizes.iter().map(|&size| pool.allocate(device, size, STREAM).unwrap()).collect();
        for block in blocks.into_iter().rev() {
            pool.deallocate(device, block, STREAM);
        }
    }

    #[test]
    fn it_looks_ahead_by_a_twentieth_and_rounds_up_to_256_bytes() {
        let mut device = Simulated::new(1 << 40, 256);
        let mut pool = GgmlLegacy::default();
        take_and_return(&mut pool, &mut device, &[9216, 65_536, 2_377_728, 8_650_752]);
        assert_eq!(device.driver_sizes(), [9728, 68_864, 2_496_768, 9_083_392]);
    }

    #[test]
    fn the_smallest_idle_block_that_is_large_enough_is_taken() {
        let mut device = Simulated::new(1 << 40, 256);
        let options = GgmlLegacyOptions::default();
        let mut pool = GgmlLegacy::holding(options, &mut device, &[4096, 1024, 2048, 1024]).unwrap();
        pool.allocate(&mut device, 1000, STREAM).unwrap();
        assert_eq!(pool.idle().collect::<Vec<_>>(), [4096, 2048, 1024]);
        pool.allocate(&mut device, 1025, STREAM).unwrap();
        assert_eq!(pool.idle().collect::<Vec<_>>(), [4096, 1024]);
        assert_eq!(pool.live(), 2025);
    }

    #[test]
    fn blocks_without_a_free_slot_return_to_the_driver() {
        let mut device = Simulated::new(1 << 40, 256);
        let mut pool = GgmlLegacy::default();
        let sizes: Vec<u64> = (1..=300).map(|n| n * 256).collect();
        take_and_return(&mut pool, &mut device, &sizes);
        assert_eq!((pool.idle().count(), device.calls().free), (256, 44));
        assert_eq!(device.violations(), []);
    }

    #[test]
    fn a_flush_gives_back_what_is_idle_and_asks_once_more() {
        let room = 100 * 1024;
        for flush in [false, true] {
            let mut device = Simulated::new(room, 256);
            let mut pool = GgmlLegacy::new(GgmlLegacyOptions { flush, ..GgmlLegacyOptions::default() });
            let block = pool.allocate(&mut device, 40 * 1024, STREAM).unwrap();
            device.launch(STREAM, 100, &[block]);
            pool.deallocate(&mut device, block, STREAM);
            assert_eq!(pool.allocate(&mut device, 90 * 1024, STREAM).is_ok(), flush);
            assert_eq!(device.violations(), [], "it waits for the card before it gives anything back");
        }
    }
}
