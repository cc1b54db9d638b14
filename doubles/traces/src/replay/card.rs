//! Simulated card for replays of allocation traces, which only counts bytes.
//!
//! GPU work takes no time, and there is no stream capture.

use std::collections::BTreeMap;

use plimsoll_pool::{Address, DeviceEvent, OutOfMemory, PoolDevice, Stream};

/// Start of the regions, far above the allocations, as on a card.
const REGIONS: u64 = 1 << 48;
/// Addresses of all regions together.
const ADDRESSES: u64 = 1 << 48;

#[derive(Debug)]
pub(super) struct ReplayCard {
    granule: u64,
    total: u64,
    used: u64,
    peak: u64,
    /// The next address of an allocation. None is given twice.
    next: u64,
    next_region: u64,
    addresses: u64,
    allocations: BTreeMap<Address, u64>,
    driver_sizes: Vec<u64>,
}

impl ReplayCard {
    /// A card of `total` bytes that are given out in multiples of `granule`, a power of two.
    pub(super) fn new(total: u64, granule: u64) -> Self {
        Self {
            granule,
            total,
            used: 0,
            peak: 0,
            next: granule,
            next_region: REGIONS,
            addresses: ADDRESSES,
            allocations: BTreeMap::new(),
            driver_sizes: Vec::new(),
        }
    }

    pub(super) fn peak_reserved(&self) -> u64 {
        self.peak
    }

    /// Sizes of granted requests, allocations and mappings, in order.
    pub(super) fn driver_sizes(&self) -> &[u64] {
        &self.driver_sizes
    }

    fn whole(&self, size: u64) -> Option<u64> {
        size.max(1).checked_next_multiple_of(self.granule)
    }

    /// Takes `whole` bytes for a request of `asked`.
    fn take(&mut self, requested: u64, whole: Option<u64>) -> Result<u64, OutOfMemory> {
        let free = self.available();
        let whole = whole.filter(|&whole| whole <= free);
        let whole = whole.ok_or(OutOfMemory { requested, free })?;
        self.used += whole;
        self.peak = self.peak.max(self.used);
        self.driver_sizes.push(requested);
        Ok(whole)
    }
}

impl PoolDevice for ReplayCard {
    fn granule(&self) -> u64 {
        self.granule
    }

    fn available(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let whole = self.take(size, self.whole(size))?;
        let address = Address(self.next);
        self.next += whole;
        self.allocations.insert(address, whole);
        Ok(address)
    }

    fn free(&mut self, address: Address) {
        self.used -= self.allocations.remove(&address).unwrap_or_default();
    }

    fn reserve(&mut self, size: u64) -> Option<Address> {
        let size = self.whole(size)?;
        self.addresses = self.addresses.checked_sub(size)?;
        let address = self.next_region;
        self.next_region = address.checked_add(size)?;
        Some(Address(address))
    }

    fn map(&mut self, _: Address, size: u64) -> Result<(), OutOfMemory> {
        self.take(size, Some(size)).map(drop)
    }

    fn unmap(&mut self, _: Address, size: u64) {
        self.used = self.used.saturating_sub(size);
    }

    fn release(&mut self, _: Address, size: u64) {
        self.addresses += size;
    }

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
