//! Direct policy: every request goes to the device, without caching.
//!
//! DECISION: like `cudaFree`, it waits for the card before it frees, and it keeps memory that a graph has
//! captured until the graph is destroyed. Its only overhead is rounding up to the granularity, so it is the
//! baseline for the other policies.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::device::{Address, CapturedGraph, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy, Trim};

#[derive(Clone, Debug, Default)]
pub struct Direct {
    held: BTreeMap<Address, DirectBlock>,
    capturing: BTreeSet<CapturedGraph>,
    reserved: u64,
    live: u64,
}

#[derive(Clone, Debug)]
struct DirectBlock {
    asked: u64,
    reserved: u64,
    /// The stream that may still use it, once it was given back.
    idle: Option<Stream>,
    graphs: BTreeSet<CapturedGraph>,
}

impl Direct {
    /// Frees blocks that were given back and that no graph has seen.
    fn sweep(&mut self, device: &mut dyn PoolDevice) -> u64 {
        // A wait for the card, which every free needs, would invalidate the capture.
        if !self.capturing.is_empty() {
            return 0;
        }
        let idle = |held: &DirectBlock| held.idle.filter(|_| held.graphs.is_empty());
        let free: Vec<(Address, Stream)> = self
            .held
            .iter()
            .filter_map(|(&address, held)| Some((address, idle(held)?)))
            .filter(|&(_, stream)| !device.capturing(stream))
            .collect();
        free.into_iter()
            .map(|(address, stream)| self.free(device, address, stream))
            .sum()
    }

    fn free(&mut self, device: &mut dyn PoolDevice, address: Address, stream: Stream) -> u64 {
        let event = device.record(stream);
        device.wait(event);
        device.forget(event);
        device.free(address);
        let reserved = self.held.remove(&address).map_or(0, |held| held.reserved);
        self.reserved -= reserved;
        reserved
    }
}

impl Policy for Direct {
    fn allocate(&mut self, device: &mut dyn PoolDevice, size: u64, _: Stream) -> Result<Block, OutOfMemory> {
        let address = device.allocate(size)?;
        // As the driver counts it, so that figures of policies with and without regions can be compared.
        let reserved = size.max(1).next_multiple_of(device.granule());
        let held = DirectBlock {
            asked: size,
            reserved,
            idle: None,
            // A block that is allocated during a capture becomes part of the graph, whatever happens to it
            // before the end.
            graphs: self.capturing.clone(),
        };
        self.held.insert(address, held);
        self.reserved += reserved;
        self.live += size;
        Ok(Block { address, size })
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        if let Some(held) = self.held.get_mut(&block.address)
            && held.idle.is_none()
        {
            held.idle = Some(stream);
            self.live -= held.asked;
            self.sweep(device);
        }
    }

    fn trim(&mut self, device: &mut dyn PoolDevice, _: Trim) -> u64 {
        self.sweep(device)
    }

    fn capture_begin(&mut self, graph: CapturedGraph) {
        self.capturing.insert(graph);
        for held in self.held.values_mut().filter(|held| held.idle.is_none()) {
            held.graphs.insert(graph);
        }
    }

    fn capture_end(&mut self, graph: CapturedGraph) {
        self.capturing.remove(&graph);
    }

    fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.capturing.remove(&graph);
        for held in self.held.values_mut() {
            held.graphs.remove(&graph);
        }
    }

    fn close(&mut self, device: &mut dyn PoolDevice) {
        // The caller has waited for the card.
        for &address in self.held.keys() {
            device.free(address);
        }
        *self = Self::default();
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
    use crate::Simulated;

    const STREAM: Stream = Stream(0);

    #[test]
    fn it_holds_what_is_live_to_the_granule_and_nothing_else() {
        let mut device = Simulated::new(1 << 20, 512);
        let mut policy = Direct::default();
        let blocks: Vec<Block> = (1..9)
            .map(|n| policy.allocate(&mut device, n * 100, STREAM).unwrap())
            .collect();
        let live: u64 = blocks.iter().map(|block| block.size.next_multiple_of(512)).sum();
        assert_eq!((policy.reserved(), policy.live()), (live, 3600));
        for block in blocks {
            policy.deallocate(&mut device, block, STREAM);
        }
        assert_eq!((policy.reserved(), device.available()), (0, 1 << 20));
        let refused = policy.allocate(&mut device, 2 << 20, STREAM).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "2097152 bytes were requested and 1048576 are free"
        );
        assert_eq!(device.violations(), &[]);
    }

    #[test]
    fn what_a_graph_has_seen_is_kept_until_the_graph_is_gone() {
        let mut device = Simulated::new(1 << 20, 512);
        let mut policy = Direct::default();
        let graph = CapturedGraph(7);
        device.begin_capture(STREAM, graph);
        policy.capture_begin(graph);
        let block = policy.allocate(&mut device, 100, STREAM).unwrap();
        device.launch(STREAM, 10, &[block]);
        policy.deallocate(&mut device, block, STREAM);
        policy.capture_end(graph);
        device.end_capture(STREAM);
        assert_eq!(policy.trim(&mut device, Trim::All), 0);
        device.launch_graph(graph, STREAM, 10);
        device.destroy_graph(graph);
        policy.graph_destroyed(graph);
        assert_eq!(policy.trim(&mut device, Trim::All), 512);
        assert_eq!(device.violations(), &[]);
    }
}
