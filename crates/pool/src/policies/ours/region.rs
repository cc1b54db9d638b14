//! Manages a fixed range of addresses that gets memory as it is used, on cards with virtual memory
//! management.
//!
//! A piece is released only if it is idle, no CUDA graph uses it, and the card has finished all work on it.

use super::mapping::RegionMapping;
use super::recent_use::PendingTrim;
use super::rounded;
use super::usage::RegionUsage;
use crate::device::{Address, CapturedGraph, OutOfMemory, PoolDevice, Stream};
use crate::policy::Trim;

/// The fewest addresses that are worth a region; with less, slots serve better.
const FEWEST: u64 = 1 << 30;

// DECISION: an event at an earlier trim (release of idle memory) shows without a wait that the card has
// finished. `BlockStack` places blocks in the region, and `RegionMapping` maps them.
#[derive(Clone, Debug)]
pub(super) struct Region {
    base: Address,
    size: u64,
    traffic: RegionUsage,
    pieces: RegionMapping,
    pending: Option<PendingTrim>,
}

impl Region {
    /// Reserves `addresses`, or half of them, and so on. `None` if the device has no regions.
    pub(super) fn reserve(device: &mut dyn PoolDevice, addresses: u64) -> Option<Self> {
        let granule = device.granule();
        // A driver can refuse a large reservation while memory is free (Tegra, llama.cpp #29142), so smaller
        // ones are tried.
        let halves = core::iter::successors(Some(addresses), |size| Some(size / 2));
        let (base, size) = halves
            .map(|size| size - size % granule)
            .take_while(|&size| size >= FEWEST)
            .find_map(|size| Some((device.reserve(size)?, size)))?;
        Some(Self {
            base,
            size,
            traffic: RegionUsage::new(size),
            pieces: RegionMapping::new(base, size),
            pending: None,
        })
    }

    pub(super) fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        requested: u64,
    ) -> Result<Address, OutOfMemory> {
        let blocks = &mut self.traffic.blocks;
        let place = rounded(requested).and_then(|size| Some((blocks.take(size, requested)?, size)));
        let Some((start, size)) = place else {
            // Bytes of addresses, since memory is not what is missing.
            let free = self.size - blocks.top();
            return Err(OutOfMemory { requested, free });
        };
        let end = start + size;
        // The common case is one comparison: everything below `solid` is mapped.
        if end > self.pieces.solid()
            && let Err(refused) = self.pieces.back(device, start, end)
        {
            // The place in the stack was taken before the memory was known to be there.
            self.traffic.blocks.give(start);
            return Err(OutOfMemory { requested, ..refused });
        }
        Ok(self.base.offset(start))
    }

    pub(super) fn deallocate(&mut self, address: Address) -> Option<u64> {
        let start = address.0.checked_sub(self.base.0)?;
        let requested = self.traffic.blocks.give(start)?;
        // Work that was submitted before the free may still use the memory, so the piece counts as used from
        // now on, too.
        self.traffic.touch(start, start + rounded(requested)?);
        Some(requested)
    }

    pub(super) fn owns(&self, address: Address) -> bool {
        let offset = address.0.checked_sub(self.base.0);
        offset.is_some_and(|offset| offset < self.size)
    }

    pub(super) fn requested(&self, address: Address) -> Option<u64> {
        let start = address.0.checked_sub(self.base.0)?;
        self.traffic.blocks.requested(start)
    }

    pub(super) fn reserved(&self) -> u64 {
        self.pieces.reserved()
    }

    /// Releases memory that was unused for some windows, once the card has finished with it.
    pub(super) fn trim_idle(&mut self, device: &mut dyn PoolDevice, stream: Stream) -> u64 {
        self.traffic.close_window();
        let mut freed = 0;
        if let Some(pending) = self.pending.take() {
            if device.done(pending.event) {
                freed = self.unmap(device, Trim::Idle);
            } else {
                // Not done yet: the event stays while the windows still cover the time since it was recorded.
                self.pending = pending.older();
            }
            if self.pending.is_none() {
                device.forget(pending.event);
            }
        }
        // One event at a time: it covers all work that was submitted so far, on everything that is idle now.
        if self.pending.is_none() && self.any(Trim::Idle) {
            self.pending = Some(PendingTrim::new(device.record(stream)));
        }
        freed
    }

    /// Releases all idle memory; waits for the card if there is any.
    pub(super) fn trim_all(&mut self, device: &mut dyn PoolDevice, stream: Stream) -> u64 {
        if !self.any(Trim::All) || !device.finish(stream) {
            return 0;
        }
        self.unmap(device, Trim::All)
    }

    fn any(&self, trim: Trim) -> bool {
        self.pieces.any(|start, end| self.traffic.may_go(trim, start, end))
    }

    fn unmap(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64 {
        let Self { pieces, traffic, .. } = self;
        pieces.unmap(device, |start, end| traffic.may_go(trim, start, end))
    }

    pub(super) fn capture_begin(&mut self, graph: CapturedGraph) {
        self.traffic.capture_begin(graph);
    }

    pub(super) fn capture_end(&mut self, graph: CapturedGraph) {
        self.traffic.capture_end(graph);
    }

    pub(super) fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.traffic.graph_destroyed(graph);
    }

    pub(super) fn close(&mut self, device: &mut dyn PoolDevice) {
        if let Some(pending) = self.pending.take() {
            device.forget(pending.event);
        }
        self.pieces.unmap(device, |_, _| true);
        // After the last unmap: a driver refuses to free addresses with mappings in them.
        device.release(self.base, self.size);
    }
}
