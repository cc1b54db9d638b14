//! Hard memory budget, shared by any number of devices.
//!
//! DECISION: bytes are taken from the budget before the driver is called, and returned after the driver has
//! freed them, by compare-and-swap. So two threads can never exceed the limit together, not even for a
//! moment. Relaxed memory order is enough, because no other data depends on these numbers.

use alloc::collections::BTreeMap;
use core::ops::Deref;

use crate::device::{Address, DeviceEvent, OutOfMemory, PoolDevice, Stream};
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// A limit in bytes, and the number of bytes taken.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    taken: AtomicU64,
}

impl Budget {
    pub fn new(limit: u64) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            taken: AtomicU64::new(0),
        }
    }

    /// Takes `size` bytes; nothing if they would pass the limit.
    pub fn take(&self, size: u64) -> Result<(), OutOfMemory> {
        let within = |taken: u64| {
            let limit = self.limit.load(Relaxed);
            taken.checked_add(size).filter(|&sum| sum <= limit)
        };
        // The limit is read inside of the update: `set_limit` between two attempts must count.
        let taken = self.taken.fetch_update(Relaxed, Relaxed, within);
        taken.map(drop).map_err(|taken| OutOfMemory {
            asked: size,
            free: self.limit.load(Relaxed).saturating_sub(taken),
        })
    }

    /// Gives bytes back that were taken.
    pub fn give(&self, size: u64) {
        self.taken.fetch_sub(size, Relaxed);
    }

    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    pub fn free(&self) -> u64 {
        self.limit.load(Relaxed).saturating_sub(self.taken())
    }

    /// Changes the limit. Bytes already taken stay taken; if they exceed the limit, nothing more is granted
    /// until they fall below it.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }
}

/// A device within a budget, which is borrowed or shared. Host memory is not counted.
#[derive(Debug)]
pub struct Limited<D, B> {
    device: D,
    budget: B,
    /// Bytes of each allocation; host memory has no entry.
    sizes: BTreeMap<Address, u64>,
    /// Bytes of each piece of a region.
    pieces: BTreeMap<Address, u64>,
}

impl<D: PoolDevice, B: Deref<Target = Budget>> Limited<D, B> {
    pub fn new(device: D, budget: B) -> Self {
        Self {
            device,
            budget,
            sizes: BTreeMap::new(),
            pieces: BTreeMap::new(),
        }
    }

    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// Bytes that the device takes of the card for a request.
    fn rounded(&self, size: u64) -> u64 {
        let whole = size.max(1).checked_next_multiple_of(self.device.granule());
        whole.unwrap_or(u64::MAX)
    }

    /// Runs a request within the budget.
    fn within<T>(
        &mut self,
        size: u64,
        request: impl FnOnce(&mut D) -> Result<T, OutOfMemory>,
    ) -> Result<T, OutOfMemory> {
        // Before the request: a budget that is tested afterwards can be passed for a moment.
        self.budget.take(size)?;
        request(&mut self.device).inspect_err(|_| self.budget.give(size))
    }
}

impl<D: PoolDevice, B: Deref<Target = Budget>> PoolDevice for Limited<D, B> {
    forward!(granule allocate_host reserve map_host release events);

    fn available(&self) -> u64 {
        self.device.available().min(self.budget.free())
    }

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let rounded = self.rounded(size);
        let address = self.within(rounded, |device| device.allocate(size))?;
        self.sizes.insert(address, rounded);
        Ok(address)
    }

    fn free(&mut self, address: Address) {
        self.device.free(address);
        // By the bytes that were taken for it, not by the size that is freed: host memory has taken none.
        let size = self.sizes.remove(&address);
        self.budget.give(size.unwrap_or_default());
    }

    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        self.within(size, |device| device.map(at, size))?;
        self.pieces.insert(at, size);
        Ok(())
    }

    fn unmap(&mut self, at: Address, size: u64) {
        self.device.unmap(at, size);
        let size = self.pieces.remove(&at);
        self.budget.give(size.unwrap_or_default());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Ours, OursOptions, Policy, Simulated, Trim};

    const MIB: u64 = 1 << 20;

    #[test]
    fn two_pools_share_a_budget_and_what_one_gives_back_the_other_may_take() {
        for regions in [true, false] {
            let budget = Budget::new(100 * MIB);
            let mut card = Limited::new(Simulated::new(1024 * MIB, MIB), &budget);
            let options = OursOptions {
                regions,
                ..OursOptions::default()
            };
            let (mut first, mut second) = (Ours::new(options), Ours::new(options));
            let block = first.allocate(&mut card, 60 * MIB, Stream(1)).unwrap();
            let refused = second.allocate(&mut card, 60 * MIB, Stream(2)).unwrap_err();
            assert_eq!(refused.free, 40 * MIB);
            first.deallocate(&mut card, block, Stream(1));
            first.trim(&mut card, Trim::All);
            assert!(second.allocate(&mut card, 60 * MIB, Stream(2)).is_ok());
            assert_eq!(budget.taken(), card.device().reserved());
            second.close(&mut card);
            assert_eq!((budget.taken(), card.device().violations()), (0, &[][..]));
        }
    }

    #[test]
    fn a_budget_that_is_lowered_takes_nothing_away_and_grants_nothing_more() {
        let budget = Budget::new(10);
        assert_eq!(budget.take(8), Ok(()));
        budget.set_limit(4);
        assert_eq!(budget.take(1), Err(OutOfMemory { asked: 1, free: 0 }));
        assert_eq!((budget.taken(), budget.free()), (8, 0));
        budget.give(6);
        assert_eq!(budget.take(2), Ok(()));
        assert!(budget.take(u64::MAX).is_err());
    }
}
