//! Overflow of a policy's memory into host memory.
//!
//! DECISION: the policy is first called with the card alone, so that it releases its idle memory before
//! anything is spilled. If it still refuses, the request is repeated with a device that fills the card and
//! takes the rest from the host. A piece of a region then gets a head on the card and a tail on the host; a
//! whole allocation goes to the host. Nothing is spilled during a graph capture, and never more than a limit.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::device::{Address, CapturedGraph, DeviceEvent, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy, Trim};

/// A policy whose memory may overflow to the host. Every call to the policy must go through this adaptor.
#[derive(Clone, Debug)]
pub struct Spilled<P> {
    policy: P,
    host: HostShare,
    captures: Vec<CapturedGraph>,
}

/// Blocks and pieces in host memory.
#[derive(Clone, Debug)]
struct HostShare {
    limit: u64,
    spilled: u64,
    allocations: BTreeMap<Address, u64>,
    /// Pieces of regions: bytes on the card, bytes on the host behind them.
    pieces: BTreeMap<Address, (u64, u64)>,
}

impl<P: Policy> Spilled<P> {
    /// At most `limit` bytes go to the host.
    pub fn new(policy: P, limit: u64) -> Self {
        let host = HostShare {
            limit,
            spilled: 0,
            allocations: BTreeMap::new(),
            pieces: BTreeMap::new(),
        };
        Self {
            policy,
            host,
            captures: Vec::new(),
        }
    }

    /// Bytes in host memory; they are part of what the policy has reserved.
    pub fn spilled(&self) -> u64 {
        self.host.spilled
    }
}

impl<P: Policy> Policy for Spilled<P> {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory> {
        // Closed first: the policy then releases its idle memory before a byte goes to the host.
        let first = self.policy.allocate(&mut self.host.closed(device), size, stream);
        match first {
            Err(_) if self.captures.is_empty() => {
                self.policy.allocate(&mut self.host.open(device), size, stream)
            }
            first => first,
        }
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        self.policy
            .deallocate(&mut self.host.closed(device), block, stream);
    }

    fn trim(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64 {
        self.policy.trim(&mut self.host.closed(device), trim)
    }

    fn capture_begin(&mut self, graph: CapturedGraph) {
        self.captures.push(graph);
        self.policy.capture_begin(graph);
    }

    fn capture_end(&mut self, graph: CapturedGraph) {
        self.captures.retain(|&open| open != graph);
        self.policy.capture_end(graph);
    }

    fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.captures.retain(|&open| open != graph);
        self.policy.graph_destroyed(graph);
    }

    fn close(&mut self, device: &mut dyn PoolDevice) {
        self.policy.close(&mut self.host.closed(device));
        self.captures.clear();
    }

    fn reserved(&self) -> u64 {
        self.policy.reserved()
    }

    fn live(&self) -> u64 {
        self.policy.live()
    }
}

impl HostShare {
    fn open<'a>(&'a mut self, device: &'a mut dyn PoolDevice) -> Overflow<'a> {
        Overflow {
            device,
            host: self,
            open: true,
        }
    }

    fn closed<'a>(&'a mut self, device: &'a mut dyn PoolDevice) -> Overflow<'a> {
        Overflow {
            device,
            host: self,
            open: false,
        }
    }
}

/// The device during an overflow: the card, then the host's memory.
struct Overflow<'a> {
    device: &'a mut dyn PoolDevice,
    host: &'a mut HostShare,
    open: bool,
}

impl Overflow<'_> {
    /// Refuses a spill beyond the limit.
    fn grant(&self, size: u64) -> Result<(), OutOfMemory> {
        let free = self.host.limit.saturating_sub(self.host.spilled);
        if self.open && size <= free {
            return Ok(());
        }
        Err(OutOfMemory { asked: size, free })
    }

    /// Maps the head of a piece to free memory of the card and the tail to host memory.
    fn split(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        let available = self.device.available().min(size);
        let head = available - available % self.device.granule();
        // Another user of the card may have taken the rest since `available` was read.
        if head == 0 || self.device.map(at, head).is_err() {
            return self.tail(at, 0, size);
        }
        self.tail(at, head, size - head)
            // A piece is mapped as a whole or not at all.
            .inspect_err(|_| self.device.unmap(at, head))
    }

    fn tail(&mut self, at: Address, head: u64, tail: u64) -> Result<(), OutOfMemory> {
        if tail > 0 {
            self.grant(tail)?;
            self.device.map_host(at.offset(head), tail)?;
        }
        self.host.spilled += tail;
        self.host.pieces.insert(at, (head, tail));
        Ok(())
    }
}

impl PoolDevice for Overflow<'_> {
    forward!(granule available allocate_host reserve map_host release events);

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let refused = match self.device.allocate(size) {
            Err(refused) if self.open => refused,
            granted => return granted,
        };
        let size = size.max(1).checked_next_multiple_of(self.device.granule());
        let size = size.ok_or(refused)?;
        self.grant(size).map_err(|_| refused)?;
        let address = self.device.allocate_host(size).map_err(|_| refused)?;
        self.host.allocations.insert(address, size);
        self.host.spilled += size;
        Ok(address)
    }

    fn free(&mut self, address: Address) {
        self.device.free(address);
        let spilled = self.host.allocations.remove(&address);
        // 0 for memory of the card.
        self.host.spilled -= spilled.unwrap_or_default();
    }

    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        match self.device.map(at, size) {
            Err(refused) if self.open => self.split(at, size).map_err(|_| refused),
            granted => granted,
        }
    }

    fn unmap(&mut self, at: Address, size: u64) {
        let (head, tail) = self.host.pieces.remove(&at).unwrap_or((size, 0));
        for (from, size) in [(0, head), (head, tail)] {
            if size > 0 {
                self.device.unmap(at.offset(from), size);
            }
        }
        self.host.spilled -= tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ours, OursOptions, Simulated};

    const MIB: u64 = 1 << 20;
    const STREAM: Stream = Stream(1);

    fn policy(regions: bool) -> Spilled<Ours> {
        let options = OursOptions {
            regions,
            ..OursOptions::default()
        };
        Spilled::new(Ours::new(options), 50 * MIB)
    }

    fn card() -> Simulated {
        Simulated::new(100 * MIB, MIB).with_host(1024 * MIB)
    }

    #[test]
    fn only_what_overflows_goes_to_the_host_and_it_comes_back() {
        let mut device = card();
        let mut policy = policy(true);
        let kept = policy.allocate(&mut device, 80 * MIB, STREAM).unwrap();
        let split = policy.allocate(&mut device, 60 * MIB, STREAM).unwrap();
        assert_eq!((device.reserved(), device.host_reserved()), (100 * MIB, 40 * MIB));
        device.launch(STREAM, 10, &[kept, split]);
        assert!(
            policy.allocate(&mut device, 20 * MIB, STREAM).is_err(),
            "the limit is 50 MiB"
        );
        assert_eq!(policy.spilled(), 40 * MIB);
        policy.deallocate(&mut device, split, STREAM);
        policy.deallocate(&mut device, kept, STREAM);
        assert_eq!(policy.trim(&mut device, Trim::All), 140 * MIB);
        assert_eq!((device.host_reserved(), policy.spilled()), (0, 0));
        assert_eq!(device.violations(), &[]);
    }

    #[test]
    fn what_is_idle_goes_before_anything_is_spilled() {
        for regions in [true, false] {
            let mut device = card();
            let mut policy = policy(regions);
            let idle = policy.allocate(&mut device, 80 * MIB, Stream(2)).unwrap();
            policy.deallocate(&mut device, idle, Stream(2));
            policy.allocate(&mut device, 90 * MIB, STREAM).unwrap();
            assert_eq!((policy.spilled(), device.violations()), (0, &[][..]));
        }
    }

    #[test]
    fn an_allocation_goes_to_the_host_whole() {
        let mut device = card();
        let mut policy = policy(false);
        policy.allocate(&mut device, 80 * MIB, STREAM).unwrap();
        policy.allocate(&mut device, 30 * MIB, STREAM).unwrap();
        assert_eq!((device.host_reserved(), policy.spilled()), (30 * MIB, 30 * MIB));
        device.synchronize();
        policy.close(&mut device);
        assert_eq!((device.host_reserved(), policy.spilled()), (0, 0));
        assert_eq!(device.violations(), &[]);
    }

    #[test]
    fn nothing_is_spilled_while_a_graph_is_captured() {
        let mut device = card();
        let mut policy = policy(true);
        policy.capture_begin(CapturedGraph(1));
        assert!(policy.allocate(&mut device, 120 * MIB, STREAM).is_err());
        policy.capture_end(CapturedGraph(1));
        assert!(policy.allocate(&mut device, 120 * MIB, STREAM).is_ok());
    }
}
