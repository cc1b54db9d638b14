//! Memory and addresses of the simulated card.

use alloc::collections::BTreeMap;

use crate::device::{Address, OutOfMemory};

/// Start of the regions, far above the allocations, as on a card.
const REGIONS: u64 = 1 << 48;

#[derive(Clone, Debug)]
pub(super) struct SimulatedMemory {
    granule: u64,
    total: u64,
    used: u64,
    peak: u64,
    host_total: u64,
    host_used: u64,
    /// Addresses of allocations and of regions that were never used.
    next: u64,
    next_region: u64,
    /// Addresses that regions may still take.
    addresses: u64,
    allocations: BTreeMap<u64, BackedPiece>,
    regions: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, BackedPiece>,
}

/// Place of simulated memory: the card or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryKind {
    Card,
    Host,
}

#[derive(Clone, Copy, Debug)]
struct BackedPiece {
    size: u64,
    kind: MemoryKind,
}

impl SimulatedMemory {
    pub(super) fn new(total: u64, granule: u64) -> Self {
        Self {
            granule: granule.max(1),
            total,
            used: 0,
            peak: 0,
            host_total: 0,
            host_used: 0,
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

    pub(super) fn set_host(&mut self, bytes: u64) {
        self.host_total = bytes;
    }

    pub(super) fn granule(&self) -> u64 {
        self.granule
    }

    pub(super) fn free(&self, kind: MemoryKind) -> u64 {
        match kind {
            MemoryKind::Card => self.total.saturating_sub(self.used),
            MemoryKind::Host => self.host_total.saturating_sub(self.host_used),
        }
    }

    pub(super) fn host_used(&self) -> u64 {
        self.host_used
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

    fn take(&mut self, size: u64, kind: MemoryKind) -> Result<(), OutOfMemory> {
        let free = self.free(kind);
        if size > free {
            return Err(OutOfMemory { asked: size, free });
        }
        match kind {
            MemoryKind::Card => self.used += size,
            MemoryKind::Host => self.host_used += size,
        }
        self.peak = self.peak.max(self.used);
        Ok(())
    }

    fn give(&mut self, piece: BackedPiece) -> u64 {
        match piece.kind {
            MemoryKind::Card => self.used -= piece.size,
            MemoryKind::Host => self.host_used -= piece.size,
        }
        piece.size
    }

    pub(super) fn allocate(&mut self, asked: u64, kind: MemoryKind) -> Result<Address, OutOfMemory> {
        let free = self.free(kind);
        let refused = OutOfMemory { asked, free };
        let size = asked.max(1).checked_next_multiple_of(self.granule);
        let size = size.ok_or(refused)?;
        self.take(size, kind).map_err(|_| refused)?;
        let address = self.next;
        // Addresses are never reused, so that a use after a free meets no other allocation.
        self.next += size;
        self.allocations.insert(address, BackedPiece { size, kind });
        Ok(Address(address))
    }

    pub(super) fn free_allocation(&mut self, address: Address) -> Option<u64> {
        let piece = self.allocations.remove(&address.0)?;
        Some(self.give(piece))
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
        let held = self.regions.get(&at.0) == Some(&size);
        if held {
            self.regions.remove(&at.0);
            self.addresses += size;
        }
        held
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

    pub(super) fn map(&mut self, at: Address, size: u64, kind: MemoryKind) -> Result<(), OutOfMemory> {
        self.take(size, kind)?;
        self.mapped.insert(at.0, BackedPiece { size, kind });
        Ok(())
    }

    pub(super) fn unmap(&mut self, at: Address, size: u64) -> bool {
        let held = self.mapped.get(&at.0).copied().filter(|piece| piece.size == size);
        if let Some(piece) = held {
            self.mapped.remove(&at.0);
            self.give(piece);
        }
        held.is_some()
    }

    pub(super) fn any_backed(&self, start: u64, end: u64) -> bool {
        let last = self.mapped.range(..end).next_back();
        last.is_some_and(|(at, piece)| at + piece.size > start)
    }

    /// True if all of `start..end` is mapped, in one allocation or in adjacent pieces.
    pub(super) fn backed(&self, start: u64, end: u64) -> bool {
        let allocation = self.allocations.range(..=start).next_back();
        if allocation.is_some_and(|(at, piece)| end <= at + piece.size) {
            return true;
        }
        let mut from = start;
        while from < end {
            match self.mapped.range(..=from).next_back() {
                Some((at, piece)) if at + piece.size > from => from = at + piece.size,
                _ => return false,
            }
        }
        true
    }
}
