//! Interface that every GPU memory allocator of this crate implements.
//!
//! A free is a call on the CPU: GPU work that uses the block may still be running on the given stream.

use crate::device::{Address, CapturedGraph, OutOfMemory, PoolDevice, Stream};

/// Range of memory that a policy handed out.
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

/// Extent of [`ServedPolicy::trim`]: which idle memory is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trim {
    /// Memory that was not used for a while and whose work is done. Never waits; a later trim releases the
    /// rest.
    Idle,
    /// Everything that is not live: waits until the card is done with it. For memory pressure.
    All,
}

/// Allocator policy: it hands out ranges of device memory and takes them back.
pub trait Policy {
    /// Hands out a range of at least `size` bytes for use on `stream`, aligned to 256 bytes. No two live
    /// blocks overlap, and work submitted to `stream` from now on meets no work of the range's former users.
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory>;

    /// Takes back a range that was handed out. Work on `stream` may still use it; work on other streams has
    /// ended or is ordered before `stream`. Foreign blocks are ignored.
    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream);

    /// Bytes that the policy holds of the device, in use or idle.
    fn reserved(&self) -> u64;

    /// Requested bytes of the blocks that are handed out.
    fn live(&self) -> u64;
}

/// A policy that serves the pool of a program: it gives memory back, and knows of captured graphs.
pub trait ServedPolicy: Policy {
    /// Gives idle memory back to the device, as far as that is safe, and returns how many bytes that was.
    /// Safe means: the card is done with it, no graph has seen it, and nothing is being captured.
    fn trim(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64;

    /// Begins the capture of `graph`: blocks that are live now or handed out until `capture_end` keep their
    /// memory at their address until `graph_destroyed`. Captures may overlap. A block freed in the meantime
    /// may be reused on its stream as usual: a launch of the graph overwrites it, like work that was
    /// submitted to the stream.
    fn capture_begin(&mut self, graph: CapturedGraph);

    /// The capture has ended. The graph may be launched any number of times from now on.
    fn capture_end(&mut self, graph: CapturedGraph);

    /// Neither the graph nor anything instantiated from it exists any longer. Unknown graphs are ignored; a
    /// capture that was broken off ends with this, too.
    fn graph_destroyed(&mut self, graph: CapturedGraph);

    /// Gives everything back, live or pinned or not. The caller has waited for the card, and no work uses the
    /// memory any more. The policy is as new afterwards.
    fn close(&mut self, device: &mut dyn PoolDevice);
}
