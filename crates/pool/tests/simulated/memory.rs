//! Simulates the memory and the address space of a card.

use std::collections::BTreeMap;

use plimsoll_pool::{Address, OutOfMemory};

/// Start of the regions, far above the allocations, as on a card.
const REGIONS: u64 = 1 << 48;

#[derive(Clone, Debug)]
pub(super) struct SimulatedMemory {
    granule: u64,
    total: u64,
    used: u64,
    peak: u64,
    /// Addresses of allocations and of regions that were never used.
    next: u64,
    next_region: u64,
    /// Addresses that regions may still take.
    addresses: u64,
    /// Sizes of allocations, of regions and of mapped pieces, by their start.
    allocations: BTreeMap<u64, u64>,
    regions: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, u64>,
}

impl SimulatedMemory {
    pub(super) fn new(total: u64, granule: u64) -> Self {
        Self {
            granule: granule.max(1),
            total,
            used: 0,
            peak: 0,
            next: granule.max(1),
            next_region: REGIONS,
            addresses: 1 << 48,
            allocations: BTreeMap::new(),
            regions: BTreeMap::new(),
            mapped: BTreeMap::new(),
        }
    }

    pub(super) fn set_addresses(&mut self, bytes: u64) {
        self.addresses = bytes;
    }

    pub(super) fn resize(&mut self, total: u64) {
        self.total = total;
    }

    pub(super) fn granule(&self) -> u64 {
        self.granule
    }

    pub(super) fn free(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    pub(super) fn pieces(&self) -> usize {
        self.allocations.len() + self.mapped.len()
    }

    fn take(&mut self, size: u64) -> Result<(), OutOfMemory> {
        let free = self.free();
        if size > free {
            return Err(OutOfMemory { requested: size, free });
        }
        self.used += size;
        self.peak = self.peak.max(self.used);
        Ok(())
    }

    pub(super) fn allocate(&mut self, requested: u64) -> Result<Address, OutOfMemory> {
        let free = self.free();
        let refused = OutOfMemory { requested, free };
        let size = requested.max(1).checked_next_multiple_of(self.granule);
        let size = size.ok_or(refused)?;
        self.take(size).map_err(|_| refused)?;
        let address = self.next;
        // Addresses are never reused, so that a use after a free meets no other allocation.
        self.next += size;
        self.allocations.insert(address, size);
        Ok(Address(address))
    }

    pub(super) fn free_allocation(&mut self, address: Address) -> Option<u64> {
        let size = self.allocations.remove(&address.0)?;
        self.used -= size;
        Some(size)
    }

    pub(super) fn reserve(&mut self, size: u64) -> Option<Address> {
        let size = size.max(1).checked_next_multiple_of(self.granule)?;
        self.addresses = self.addresses.checked_sub(size)?;
        let address = self.next_region;
        self.next_region = address.checked_add(size)?;
        self.regions.insert(address, size);
        Some(Address(address))
    }

    pub(super) fn release(&mut self, at: Address, size: u64) -> bool {
        let occupied = self.regions.get(&at.0) == Some(&size);
        if occupied {
            self.regions.remove(&at.0);
            self.addresses += size;
        }
        occupied
    }

    /// True if a piece is whole granules of one region, none of them mapped.
    pub(super) fn can_map(&self, at: Address, size: u64) -> bool {
        let Some(end) = at.0.checked_add(size) else {
            return false;
        };
        // The region that begins at or before the address is the only one that can hold it.
        let region = self.regions.range(..=at.0).next_back();
        size > 0
            && size.is_multiple_of(self.granule)
            && region.is_some_and(|(start, length)| {
                (at.0 - start).is_multiple_of(self.granule) && end <= start + length
            })
            // A driver refuses to map over a mapping.
            && !self.any_backed(at.0, end)
    }

    pub(super) fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        self.take(size)?;
        self.mapped.insert(at.0, size);
        Ok(())
    }

    pub(super) fn unmap(&mut self, at: Address, size: u64) -> bool {
        let occupied = self.mapped.get(&at.0) == Some(&size);
        if occupied {
            self.mapped.remove(&at.0);
            self.used -= size;
        }
        occupied
    }

    pub(super) fn any_backed(&self, start: u64, end: u64) -> bool {
        let last = self.mapped.range(..end).next_back();
        last.is_some_and(|(at, size)| at + size > start)
    }

    /// True if all of `start..end` is mapped, in one allocation or in adjacent pieces.
    pub(super) fn backed(&self, start: u64, end: u64) -> bool {
        let allocation = self.allocations.range(..=start).next_back();
        if allocation.is_some_and(|(at, size)| end <= at + size) {
            return true;
        }
        let mut from = start;
        while from < end {
            match self.mapped.range(..=from).next_back() {
                Some((at, size)) if at + size > from => from = at + size,
                _ => return false,
            }
        }
        true
    }
}
