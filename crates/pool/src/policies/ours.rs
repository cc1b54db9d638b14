//! Plimsoll's own GPU memory allocator, which keeps reserved memory close to the memory in use.
//!
//! On cards with virtual memory management it uses a growing address range ([`Region`]), on others whole
//! allocations ([`SlotSet`]).

use alloc::vec::Vec;

use crate::device::{Address, CapturedGraph, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy, ServedPolicy, Trim};

mod blocks;
mod growth;
mod mapping;
mod recent_use;
mod region;
mod slots;
mod usage;

use region::Region;
use slots::SlotSet;

/// Alignment and rounding of blocks: as `cudaMalloc` aligns.
const ALIGNMENT: u64 = 256;

/// Settings of Plimsoll's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OursOptions {
    /// Use of virtual memory management where the device has it. Without it, every block is an allocation of
    /// the device.
    pub regions: bool,
    /// Addresses to reserve for each stream; fewer where the device has fewer.
    pub addresses: u64,
}

impl Default for OursOptions {
    fn default() -> Self {
        Self { regions: true, addresses: 1 << 40 }
    }
}

/// Plimsoll's allocator policy. See the module.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    options: OursOptions,
    lanes: Vec<StreamLane>,
    /// Graphs that are being captured.
    captures: Vec<CapturedGraph>,
    /// Blocks that were freed on another stream than their lane's while no event could be recorded.
    parked: Vec<(Address, Stream)>,
    live: u64,
}

// DECISION: each stream has a separate part (lane), so reuse needs no event. A block freed on another stream
// returns to its lane with an event. If a request is refused, every lane releases its idle memory.
/// Memory for one stream.
#[derive(Clone, Debug)]
struct StreamLane {
    stream: Stream,
    tier: Tier,
}

#[derive(Clone, Debug)]
enum Tier {
    Region(Region),
    Slots(SlotSet),
}

impl Ours {
    pub fn new(options: OursOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// True if an address lies in memory of this policy.
    pub fn owns(&self, address: Address) -> bool {
        self.lanes.iter().any(|lane| lane.owns(address))
    }

    /// Requested bytes of the live block at an address.
    pub fn requested(&self, address: Address) -> Option<u64> {
        let parked = self.parked.iter().any(|&(parked, _)| parked == address);
        let mut lanes = self.lanes.iter().filter(|_| !parked);
        lanes.find_map(|lane| lane.requested(address))
    }

    fn find(&self, stream: Stream) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.stream == stream)
    }

    #[cold]
    fn open(&mut self, device: &mut dyn PoolDevice, stream: Stream) -> usize {
        let region = self.options.regions.then(|| Region::reserve(device, self.options.addresses));
        let tier = region.flatten().map_or_else(|| Tier::Slots(SlotSet::default()), Tier::Region);
        // A capture may be under way on another stream; its graph may come to use this lane, too.
        let mut lane = StreamLane { stream, tier };
        for &graph in &self.captures {
            lane.capture_begin(graph);
        }
        self.lanes.push(lane);
        self.lanes.len() - 1
    }

    /// Repeats a refused request after every lane has released its idle memory.
    #[cold]
    fn insist(
        &mut self,
        device: &mut dyn PoolDevice,
        lane: usize,
        size: u64,
        refused: OutOfMemory,
    ) -> Result<Address, OutOfMemory> {
        // Without a byte gained the device would refuse again, and a refusal of a real driver takes
        // milliseconds.
        if self.trim(device, Trim::All) == 0 {
            return Err(refused);
        }
        self.lanes[lane].allocate(device, size, !self.captures.is_empty())
    }

    /// Takes back a block that was freed on another stream than its lane's.
    #[cold]
    fn deallocate_across(&mut self, device: &mut dyn PoolDevice, address: Address, stream: Stream) {
        if let Some(requested) = self.requested(address) {
            self.live -= requested;
            self.parked.push((address, stream));
            self.settle(device);
        }
    }

    /// Returns parked blocks to their lanes, each behind an event, as soon as events can be recorded.
    #[cold]
    fn settle(&mut self, device: &mut dyn PoolDevice) {
        let Self { lanes, captures, parked, .. } = self;
        // Parked blocks are not live for the program any more, and not yet free for their lane.
        parked.retain(|&(address, stream)| {
            let Some(lane) = lanes.iter_mut().find(|lane| lane.owns(address)) else {
                return false;
            };
            if !captures.is_empty() || device.capturing(stream) || device.capturing(lane.stream) {
                return true;
            }
            // The block is free for the lane at once: its next work is ordered behind the other stream on the
            // card.
            lane.deallocate(address);
            let event = device.record(stream);
            // The wait is on the card: the CPU goes on at once.
            device.order(lane.stream, event);
            device.forget(event);
            false
        });
    }
}

impl Policy for Ours {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory> {
        if !self.parked.is_empty() {
            self.settle(device);
        }
        let lane = match self.find(stream) {
            Some(lane) => lane,
            None => self.open(device, stream),
        };
        let address = match self.lanes[lane].allocate(device, size, !self.captures.is_empty()) {
            Ok(address) => address,
            Err(refused) => self.insist(device, lane, size, refused)?,
        };
        self.live += size;
        Ok(Block { address, size })
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        let own = self.find(stream).and_then(|lane| self.lanes[lane].deallocate(block.address));
        match own {
            Some(requested) => self.live -= requested,
            None => self.deallocate_across(device, block.address, stream),
        }
    }

    fn reserved(&self) -> u64 {
        self.lanes.iter().map(StreamLane::reserved).sum()
    }

    fn live(&self) -> u64 {
        self.live
    }
}

impl ServedPolicy for Ours {
    fn trim(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64 {
        self.settle(device);
        // Freeing and unmapping would become part of a capture or invalidate it.
        if !self.captures.is_empty() || self.lanes.iter().any(|lane| device.capturing(lane.stream)) {
            return 0;
        }
        self.lanes.iter_mut().map(|lane| lane.trim(device, trim)).sum()
    }

    fn capture_begin(&mut self, graph: CapturedGraph) {
        if !self.captures.contains(&graph) {
            self.captures.push(graph);
        }
        self.lanes.iter_mut().for_each(|lane| lane.capture_begin(graph));
    }

    fn capture_end(&mut self, graph: CapturedGraph) {
        self.captures.retain(|&open| open != graph);
        self.lanes.iter_mut().for_each(|lane| lane.capture_end(graph));
    }

    fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.captures.retain(|&open| open != graph);
        self.lanes.iter_mut().for_each(|lane| lane.graph_destroyed(graph));
    }

    fn close(&mut self, device: &mut dyn PoolDevice) {
        self.lanes.drain(..).for_each(|lane| lane.close(device));
        *self = Self::new(self.options);
    }
}

/// Bytes of a block for a request; `None` on overflow.
fn rounded(requested: u64) -> Option<u64> {
    requested.max(1).checked_next_multiple_of(ALIGNMENT)
}

/// Calls the same method of either tier.
macro_rules! in_tier {
    ($lane:expr, $tier:ident => $act:expr) => {
        match &$lane.tier {
            Tier::Region($tier) => $act,
            Tier::Slots($tier) => $act,
        }
    };
    (mut $lane:expr, $tier:ident => $act:expr) => {
        match &mut $lane.tier {
            Tier::Region($tier) => $act,
            Tier::Slots($tier) => $act,
        }
    };
}

impl StreamLane {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        capturing: bool,
    ) -> Result<Address, OutOfMemory> {
        match &mut self.tier {
            Tier::Region(region) => region.allocate(device, size),
            Tier::Slots(slots) => slots.allocate(device, self.stream, size, capturing),
        }
    }

    /// Frees a block; returns its requested bytes if it is live and of this lane.
    fn deallocate(&mut self, address: Address) -> Option<u64> {
        in_tier!(mut self, tier => tier.deallocate(address))
    }

    fn trim(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64 {
        in_tier!(mut self, tier => match trim {
            Trim::Idle => tier.trim_idle(device, self.stream),
            Trim::All => tier.trim_all(device, self.stream),
        })
    }

    fn capture_begin(&mut self, graph: CapturedGraph) {
        in_tier!(mut self, tier => tier.capture_begin(graph));
    }

    fn capture_end(&mut self, graph: CapturedGraph) {
        in_tier!(mut self, tier => tier.capture_end(graph));
    }

    fn graph_destroyed(&mut self, graph: CapturedGraph) {
        in_tier!(mut self, tier => tier.graph_destroyed(graph));
    }

    fn close(mut self, device: &mut dyn PoolDevice) {
        in_tier!(mut self, tier => tier.close(device));
    }

    fn owns(&self, address: Address) -> bool {
        in_tier!(self, tier => tier.owns(address))
    }

    /// Requested bytes of the block at this address, if it is live and of this lane.
    fn requested(&self, address: Address) -> Option<u64> {
        in_tier!(self, tier => tier.requested(address))
    }

    fn reserved(&self) -> u64 {
        in_tier!(self, tier => tier.reserved())
    }
}

#[cfg(test)]
mod tests;
