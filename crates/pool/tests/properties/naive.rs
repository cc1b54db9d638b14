//! Simplest possible allocator policy, as a reference for tests: every request goes to the driver.
//!
//! Like `cudaFree`, it waits for the card before it frees, and it keeps memory that a graph has captured
//! until the graph is destroyed.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_pool::{
    Address, Block, CapturedGraph, OutOfMemory, Policy, PoolDevice, ServedPolicy, Stream, Trim,
};

use crate::runner::simulated::Simulated;

#[derive(Clone, Debug, Default)]
pub(crate) struct Naive {
    occupied: BTreeMap<Address, NaiveBlock>,
    capturing: BTreeSet<CapturedGraph>,
    reserved: u64,
    live: u64,
}

#[derive(Clone, Debug)]
struct NaiveBlock {
    requested: u64,
    reserved: u64,
    /// The stream that may still use it, once it was given back.
    idle: Option<Stream>,
    graphs: BTreeSet<CapturedGraph>,
}

impl Naive {
    /// Frees blocks that were given back and that no graph has seen.
    fn sweep(&mut self, device: &mut dyn PoolDevice) -> u64 {
        // A wait for the card, which every free needs, would invalidate the capture.
        if !self.capturing.is_empty() {
            return 0;
        }
        let idle = |occupied: &NaiveBlock| occupied.idle.filter(|_| occupied.graphs.is_empty());
        let free: Vec<(Address, Stream)> = self
            .occupied
            .iter()
            .filter_map(|(&address, occupied)| Some((address, idle(occupied)?)))
            .filter(|&(_, stream)| !device.capturing(stream))
            .collect();
        free.into_iter().map(|(address, stream)| self.free(device, address, stream)).sum()
    }

    fn free(&mut self, device: &mut dyn PoolDevice, address: Address, stream: Stream) -> u64 {
        device.finish(stream);
        device.free(address);
        let reserved = self.occupied.remove(&address).map_or(0, |occupied| occupied.reserved);
        self.reserved -= reserved;
        reserved
    }
}

impl Policy for Naive {
    fn allocate(&mut self, device: &mut dyn PoolDevice, size: u64, _: Stream) -> Result<Block, OutOfMemory> {
        let address = device.allocate(size)?;
        // As the driver counts it, so that figures of policies with and without regions can be compared.
        let reserved = size.max(1).next_multiple_of(device.granule());
        let occupied = NaiveBlock {
            requested: size,
            reserved,
            idle: None,
            // A block that is allocated during a capture becomes part of the graph, whatever happens to it
            // before the end.
            graphs: self.capturing.clone(),
        };
        self.occupied.insert(address, occupied);
        self.reserved += reserved;
        self.live += size;
        Ok(Block { address, size })
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        if let Some(occupied) = self.occupied.get_mut(&block.address)
            && occupied.idle.is_none()
        {
            occupied.idle = Some(stream);
            self.live -= occupied.requested;
            self.sweep(device);
        }
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn live(&self) -> u64 {
        self.live
    }
}

impl ServedPolicy for Naive {
    fn trim(&mut self, device: &mut dyn PoolDevice, _: Trim) -> u64 {
        self.sweep(device)
    }

    fn capture_begin(&mut self, graph: CapturedGraph) {
        self.capturing.insert(graph);
        for occupied in self.occupied.values_mut().filter(|occupied| occupied.idle.is_none()) {
            occupied.graphs.insert(graph);
        }
    }

    fn capture_end(&mut self, graph: CapturedGraph) {
        self.capturing.remove(&graph);
    }

    fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.capturing.remove(&graph);
        for occupied in self.occupied.values_mut() {
            occupied.graphs.remove(&graph);
        }
    }

    fn close(&mut self, device: &mut dyn PoolDevice) {
        // The caller has waited for the card.
        for &address in self.occupied.keys() {
            device.free(address);
        }
        *self = Self::default();
    }
}

#[test]
fn captured_blocks_of_the_naive_pool_are_kept_until_their_graph_is_destroyed() {
    let mut device = Simulated::new(1 << 20, 512);
    let mut policy = Naive::default();
    let graph = CapturedGraph(7);
    device.begin_capture(Stream(0), graph);
    policy.capture_begin(graph);
    let block = policy.allocate(&mut device, 100, Stream(0)).unwrap();
    device.launch(Stream(0), 10, &[block]);
    policy.deallocate(&mut device, block, Stream(0));
    policy.capture_end(graph);
    device.end_capture(Stream(0));
    assert_eq!(policy.trim(&mut device, Trim::All), 0);
    device.launch_graph(graph, Stream(0), 10);
    device.destroy_graph(graph);
    policy.graph_destroyed(graph);
    assert_eq!(policy.trim(&mut device, Trim::All), 512);
    assert_eq!(device.violations(), &[]);
}
