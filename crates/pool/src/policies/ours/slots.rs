//! Reuses whole allocations, and replaces those that are too small, on cards without virtual memory
//! management.
//!
//! A slot that is too small is freed before the larger one is allocated.

use alloc::vec::Vec;

use super::recent_use::WINDOWS;
use super::{growth, rounded};
use crate::device::{Address, CapturedGraph, DeviceEvent, OutOfMemory, PoolDevice, Stream};

// DECISION: legacy pools keep every size that they ever had; this one does not. A request takes the first
// possible one of these:
//
// - the smallest idle slot that is large enough and at most a quarter too large;
// - a new slot of the exact size, while all slots together stay within 5/4 of the peak of live memory;
// - any idle slot that is large enough, to avoid a driver call;
// - a new slot with room to grow, after the largest idle slots are freed as the 5/4 limit requires.
//
// During a graph capture nothing is freed, and memory of a graph stays until the graph is destroyed.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotSet {
    slots: Vec<DeviceSlot>,
    /// Rounded bytes of live blocks, and their peak.
    live: u64,
    peak: u64,
    reserved: u64,
    /// Counts frees, captures and trims: the order of events on the CPU.
    clock: u64,
    /// The clock at the last trims, newest first.
    windows: [u64; WINDOWS],
    /// The event behind which slots wait to be freed, and the clock when it was recorded.
    pending: Option<(DeviceEvent, u64)>,
    captures: Vec<SlotCapture>,
}

#[derive(Clone, Debug)]
struct DeviceSlot {
    address: Address,
    size: u64,
    /// Requested bytes, if it is live.
    requested: Option<u64>,
    /// The clock at its last free.
    given: u64,
    /// Graphs that have seen it.
    pins: u32,
}

/// Slots that a captured graph uses.
#[derive(Clone, Debug)]
struct SlotCapture {
    graph: CapturedGraph,
    /// The clock at the begin of the capture, while it lasts.
    began: Option<u64>,
    seen: Vec<Address>,
}

impl DeviceSlot {
    fn may_go(&self) -> bool {
        self.requested.is_none() && self.pins == 0
    }
}

impl SlotSet {
    pub(super) fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        stream: Stream,
        requested: u64,
        capturing: bool,
    ) -> Result<Address, OutOfMemory> {
        // Only sizes near the end of u64 have no rounded form.
        let Some(size) = rounded(requested) else {
            let free = device.available();
            return Err(OutOfMemory { requested, free });
        };
        let index = match self.fitting(size, size.saturating_add(size / 4)) {
            Some(index) => index,
            None => self
                .find_or_take(device, stream, size, capturing)
                .map_err(|refused| OutOfMemory { requested, ..refused })?,
        };
        let slot = &mut self.slots[index];
        slot.requested = Some(requested);
        self.live += size;
        self.peak = self.peak.max(self.live);
        Ok(slot.address)
    }

    /// The smallest idle slot of at least `least` and at most `most` bytes.
    fn fitting(&self, least: u64, most: u64) -> Option<usize> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.requested.is_none() && (least..=most).contains(&slot.size))
            .min_by_key(|(_, slot)| slot.size)
            .map(|(index, _)| index)
    }

    #[cold]
    fn find_or_take(
        &mut self,
        device: &mut dyn PoolDevice,
        stream: Stream,
        size: u64,
        capturing: bool,
    ) -> Result<usize, OutOfMemory> {
        // Rule 2: growth up to a quarter above the peak is allowed without replacing a slot, since a wait for
        // the card costs more than the memory.
        let peak = self.peak.max(self.live.saturating_add(size));
        let room = peak.saturating_add(peak / 4).saturating_sub(self.reserved);
        if size <= room
            && let Ok(index) = self.take(device, size, size)
        {
            return Ok(index);
        }
        // Rule 3: a slot that is far too large is still cheaper than the wait for the card which rule 4
        // needs.
        if let Some(index) = self.fitting(size, u64::MAX) {
            return Ok(index);
        }
        // Outgrown slots cannot be freed during a capture.
        if capturing || device.capturing(stream) {
            return self.take(device, size, size);
        }
        // Rule 4: room to grow, so that the next growth of a KV cache copy fits into the same slot.
        let headroom = device.available().saturating_sub(size);
        let grown = growth::slot(size, headroom);
        let outgrown = self.retire(device, stream, grown.saturating_sub(room));
        self.take(device, size, if outgrown { grown } else { size })
    }

    /// Takes a new slot of `wanted` bytes, or of `size` if that is too much.
    fn take(&mut self, device: &mut dyn PoolDevice, size: u64, wanted: u64) -> Result<usize, OutOfMemory> {
        let granule = device.granule();
        let whole = |bytes: u64| bytes.checked_next_multiple_of(granule).unwrap_or(bytes);
        let (size, wanted) = (whole(size), whole(wanted));
        let (address, size) = match device.allocate(wanted) {
            Ok(address) => (address, wanted),
            // A refusal of the exact size is final here; the policy above gives back idle memory and asks
            // again.
            Err(refused) if wanted == size => return Err(refused),
            Err(_) => (device.allocate(size)?, size),
        };
        self.reserved += size;
        self.slots.push(DeviceSlot { address, size, requested: None, given: self.clock, pins: 0 });
        Ok(self.slots.len() - 1)
    }

    /// Frees the largest idle slots until `bytes` are gained or none is left. Returns whether there was one.
    fn retire(&mut self, device: &mut dyn PoolDevice, stream: Stream, bytes: u64) -> bool {
        let mut gained = 0;
        self.slots
            // The largest first: fewest frees for the bytes that are needed. Order has no other meaning in
            // this list.
            .sort_unstable_by_key(|slot| core::cmp::Reverse(slot.size));
        let goes = |slot: &DeviceSlot| {
            let goes = slot.may_go() && gained < bytes;
            gained += if goes { slot.size } else { 0 };
            goes
        };
        if !self.slots.iter().any(DeviceSlot::may_go) || !device.finish(stream) {
            return false;
        }
        self.free(device, goes) > 0
    }

    fn free(&mut self, device: &mut dyn PoolDevice, mut goes: impl FnMut(&DeviceSlot) -> bool) -> u64 {
        let before = self.reserved;
        let reserved = &mut self.reserved;
        self.slots.retain(|slot| {
            let goes = goes(slot);
            if goes {
                device.free(slot.address);
                *reserved -= slot.size;
            }
            !goes
        });
        before - self.reserved
    }

    pub(super) fn deallocate(&mut self, address: Address) -> Option<u64> {
        let slot = self.slots.iter_mut().find(|slot| slot.address == address)?;
        let requested = slot.requested.take()?;
        self.clock += 1;
        // Trims compare this with the clock of the event behind which the slot waits.
        slot.given = self.clock;
        self.live -= rounded(requested)?;
        Some(requested)
    }

    pub(super) fn owns(&self, address: Address) -> bool {
        self.slots.iter().any(|slot| slot.address == address)
    }

    pub(super) fn requested(&self, address: Address) -> Option<u64> {
        self.slots.iter().find(|slot| slot.address == address)?.requested
    }

    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Frees slots that were unused for some windows, once the card is done with them.
    pub(super) fn trim_idle(&mut self, device: &mut dyn PoolDevice, stream: Stream) -> u64 {
        // Freed before the oldest window: unused for all of them.
        let oldest = self.windows[WINDOWS - 1];
        self.windows.rotate_right(1);
        self.windows[0] = self.clock;
        let mut freed = 0;
        if let Some((event, recorded)) = self.pending
            && device.done(event)
        {
            // Not what was freed behind the event: its work may still be in flight.
            freed = self.free(device, |slot| slot.may_go() && slot.given <= oldest.min(recorded));
            device.forget(event);
            self.pending = None;
        }
        let rested = |slot: &DeviceSlot| slot.may_go() && slot.given <= oldest;
        if self.pending.is_none() && self.slots.iter().any(rested) {
            self.pending = Some((device.record(stream), self.clock));
        }
        freed
    }

    /// Frees all idle slots; waits for the card if there are any.
    pub(super) fn trim_all(&mut self, device: &mut dyn PoolDevice, stream: Stream) -> u64 {
        if !self.slots.iter().any(DeviceSlot::may_go) || !device.finish(stream) {
            return 0;
        }
        self.free(device, DeviceSlot::may_go)
    }

    pub(super) fn capture_begin(&mut self, graph: CapturedGraph) {
        self.clock += 1;
        let began = Some(self.clock);
        match self.captures.iter_mut().find(|capture| capture.graph == graph) {
            Some(capture) => capture.began = capture.began.or(began),
            None => self.captures.push(SlotCapture { graph, began, seen: Vec::new() }),
        }
    }

    /// Pins slots that are live or were freed since the capture began.
    pub(super) fn capture_end(&mut self, graph: CapturedGraph) {
        let Some(capture) = self.captures.iter_mut().find(|capture| capture.graph == graph) else {
            return;
        };
        let Some(began) = capture.began.take() else {
            return;
        };
        let seen = self.slots.iter_mut().filter(|slot| slot.requested.is_some() || slot.given > began);
        for slot in seen {
            slot.pins += 1;
            capture.seen.push(slot.address);
        }
    }

    pub(super) fn graph_destroyed(&mut self, graph: CapturedGraph) {
        let Some(index) = self.captures.iter().position(|capture| capture.graph == graph) else {
            return;
        };
        // By address: slots move in their list, addresses are never given twice while a slot lives.
        for address in self.captures.swap_remove(index).seen {
            for slot in self.slots.iter_mut().filter(|slot| slot.address == address) {
                slot.pins -= 1;
            }
        }
    }

    pub(super) fn close(&mut self, device: &mut dyn PoolDevice) {
        if let Some((event, _)) = self.pending.take() {
            device.forget(event);
        }
        self.free(device, |_| true);
    }
}
