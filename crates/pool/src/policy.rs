//! Interface of an allocator policy.
//!
//! DECISION: the shape of RAPIDS RMM's `device_memory_resource`, with calls for captured graphs. The device
//! is lent to every call instead of being owned, so that several policies (one for each stream, say) share
//! one card, and so that a policy stays a plain value that can be compared, cloned and replayed. Freeing is
//! an act of the CPU: work that uses the block may still be in flight, in the order of the stream that is
//! named.

use crate::device::{Address, CapturedGraph, OutOfMemory, PoolDevice, Stream};

/// A range that a policy handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    pub address: Address,
    /// Requested bytes; the policy may hold more for it.
    pub size: u64,
}

impl Block {
    /// The first address behind the block.
    pub const fn end(&self) -> Address {
        self.address.offset(self.size)
    }
}

/// Extent of [`Policy::trim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trim {
    /// Memory that has not been needed for a while and whose work is done. Never waits; a later trim gives
    /// back the rest.
    Idle,
    /// Everything that is not live: waits until the card is done with it. For memory pressure.
    All,
}

/// Condition under which the original aborts its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A block was freed that was not the last one allocated.
    OutOfOrder,
    /// The reserved addresses are used up, though the card may have memory left.
    AddressesUsedUp,
}

/// Hands out and takes back ranges of device memory.
pub trait Policy {
    /// Hands out a range of at least `size` bytes for use on `stream`, aligned to 256 bytes. No two live
    /// blocks overlap, and work submitted to `stream` from now on meets no work of the range's former users.
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory>;

    /// Takes a range back that was handed out before and not yet taken back; work on `stream` may still use
    /// it, and work on other streams is done with it or ordered before `stream`. Foreign blocks are ignored.
    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream);

    /// Gives idle memory back to the device, as far as that is safe, and returns how many bytes that was.
    /// Safe means: the card is done with it, no graph has seen it, and nothing is being captured.
    fn trim(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64;

    /// From now on `graph` is being captured: what is live now and what is handed out until `capture_end`
    /// stays backed at its address until `graph_destroyed`. Captures may overlap. What is freed meanwhile may
    /// be handed out again on its stream, as always: a launch of the graph overwrites it, as work that was
    /// submitted to the stream would.
    fn capture_begin(&mut self, _graph: CapturedGraph) {}

    /// The capture has ended. The graph may be launched any number of times from now on.
    fn capture_end(&mut self, _graph: CapturedGraph) {}

    /// Neither the graph nor anything instantiated from it exists any longer. Unknown graphs are ignored; a
    /// capture that was broken off ends with this, too.
    fn graph_destroyed(&mut self, _graph: CapturedGraph) {}

    /// Gives everything back, live or pinned or not. The caller has waited for the card, and no work uses the
    /// memory any more. The policy is as new afterwards.
    fn close(&mut self, device: &mut dyn PoolDevice);

    /// Bytes that the policy holds of the device, in use or idle.
    fn reserved(&self) -> u64;

    /// Bytes of the blocks that are handed out, as they were asked for.
    fn live(&self) -> u64;

    /// The reason why the policy cannot go on and refuses everything, if there is one.
    fn broken(&self) -> Option<Broken> {
        None
    }
}
