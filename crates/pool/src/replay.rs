//! Replays the recorded allocations of an engine with an allocator, on a simulated card with unlimited
//! memory.
//!
//! Each operation allocates its blocks in order and frees them in reverse, as the scopes in the engine's code
//! do.

use alloc::vec::Vec;

use crate::device::{Address, DeviceEvent, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy};

const STREAM: Stream = Stream(0);
/// More memory than any card has.
const ENDLESS: u64 = 1 << 46;
// Whole allocations count in their requested size, mapped pieces in these granules.
/// Granule of regions, on all cards so far.
pub const GRANULE: u64 = 2 << 20;
/// A driver packs requests below this into pieces of a granule.
const LARGE: u64 = 1 << 20;

#[derive(Debug)]
pub struct Scopes<P> {
    policy: P,
    device: EndlessCard,
    lent: Vec<Block>,
    live: u64,
}

impl<P: Policy> Scopes<P> {
    /// A device with this granule.
    pub fn new(policy: P, granule: u64) -> Self {
        Self {
            policy,
            device: EndlessCard { granule, used: 0, driver_sizes: Vec::new() },
            lent: Vec::new(),
            live: 0,
        }
    }

    /// Takes a block, or gives the last one back.
    pub fn step(&mut self, step: Option<u64>) {
        match step {
            Some(bytes) => {
                // Only a request that no card could serve is refused.
                if let Ok(block) = self.policy.allocate(&mut self.device, bytes, STREAM) {
                    self.lent.push(block);
                    self.live = self.live.max(self.policy.live());
                }
            }
            None => {
                if let Some(block) = self.lent.pop() {
                    self.policy.deallocate(&mut self.device, block, STREAM);
                }
            }
        }
    }

    /// Allocates blocks in order and frees them in reverse. Sizes of 0 are left out.
    pub fn group(&mut self, sizes: &[u64]) {
        let before = self.lent.len();
        for &bytes in sizes.iter().filter(|&&bytes| bytes > 0) {
            self.step(Some(bytes));
        }
        while self.lent.len() > before {
            self.step(None);
        }
    }

    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Sizes of driver requests, in order.
    pub fn driver_sizes(&self) -> &[u64] {
        &self.device.driver_sizes
    }

    /// The most bytes lent at once.
    pub fn live(&self) -> u64 {
        self.live
    }
}

/// A card on which allocations only add up: what a policy gives back is not used again.
#[derive(Debug)]
struct EndlessCard {
    granule: u64,
    used: u64,
    driver_sizes: Vec<u64>,
}

impl PoolDevice for EndlessCard {
    fn granule(&self) -> u64 {
        self.granule
    }

    fn available(&self) -> u64 {
        ENDLESS - self.used
    }

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let free = self.available();
        let whole = size.max(1).checked_next_multiple_of(self.granule).filter(|&whole| whole <= free);
        // Addresses begin behind the first granule: 0 is no address.
        let address = Address(self.granule).offset(self.used);
        self.used += whole.ok_or(OutOfMemory { requested: size, free })?;
        self.driver_sizes.push(size);
        Ok(address)
    }

    fn free(&mut self, _: Address) {}

    fn record(&mut self, _: Stream) -> DeviceEvent {
        DeviceEvent(0)
    }

    fn done(&mut self, _: DeviceEvent) -> bool {
        true
    }

    fn wait(&mut self, _: DeviceEvent) {}

    fn order(&mut self, _: Stream, _: DeviceEvent) {}

    fn forget(&mut self, _: DeviceEvent) {}

    fn capturing(&self, _: Stream) -> bool {
        false
    }
}

/// Bytes that a driver takes of a card for whole allocations of these sizes: large ones in granules of their
/// own, small ones packed together (`data/measured/h200-growth-b8799.json`).
pub fn driver_takes(sizes: impl IntoIterator<Item = u64>) -> u64 {
    let (large, small): (Vec<u64>, Vec<u64>) = sizes.into_iter().partition(|size| *size >= LARGE);
    let granules = |size: u64| size.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX);
    let sum = |sizes: Vec<u64>| sizes.into_iter().fold(0, u64::saturating_add);
    // Large allocations are rounded one by one, small ones together.
    sum(large.into_iter().map(granules).collect()).saturating_add(granules(sum(small)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::GgmlLegacy;

    #[test]
    fn a_group_is_alive_together_and_leaves_nothing_lent() {
        let mut scopes = Scopes::new(GgmlLegacy::default(), 256);
        scopes.group(&[1024, 0, 2048]);
        scopes.group(&[512]);
        assert_eq!((scopes.live(), scopes.policy().live()), (3072, 0));
        assert_eq!(scopes.driver_sizes().len(), 2);
    }

    #[test]
    fn a_group_that_is_refused_ends() {
        let mut scopes = Scopes::new(GgmlLegacy::default(), 256);
        scopes.group(&[u64::MAX, 1024]);
        assert_eq!(scopes.live(), 1024);
    }

    #[test]
    fn small_blocks_share_a_granule_and_large_ones_have_their_own() {
        assert_eq!(driver_takes([9728, 68_864]), GRANULE);
        assert_eq!(driver_takes([1 << 20, 512]), 2 * GRANULE);
        assert_eq!(driver_takes([]), 0);
        assert_eq!(driver_takes([u64::MAX, 1]), u64::MAX);
    }
}
