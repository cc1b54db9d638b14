//! What a policy is.

use crate::device::{Address, Device, OutOfMemory};

/// A queue of work on a device: what is freed on it may be handed out again on it at once, elsewhere only after an
/// event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u32);

/// A range that a policy handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    pub address: Address,
    /// What was asked for; the policy may hold more for it.
    pub size: u64,
}

/// Hands out and takes back ranges of device memory.
pub trait Policy {
    /// Returns a range of at least `size` bytes for use on `stream`.
    fn allocate(&mut self, device: &mut dyn Device, size: u64, stream: Stream) -> Result<Block, OutOfMemory>;

    /// Takes a range back that was handed out before and not yet taken back; work on `stream` may still use it.
    fn deallocate(&mut self, device: &mut dyn Device, block: Block, stream: Stream);

    /// Gives back to the device what is idle, as far as that is safe.
    fn trim(&mut self, device: &mut dyn Device);

    /// Bytes that the policy holds of the device, in use or idle.
    fn reserved(&self) -> u64;
}
