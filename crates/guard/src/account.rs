//! Accounts of what the program holds of each card, and claims on the budget for what it asks.
//!
//! A request is claimed of the tree's budget before the driver is asked ([`claim`]), so that no two threads
//! or processes pass the budget together. Totals are atomics of the page; [`blocks`] remembers which address
//! is how many bytes of which card.

pub(crate) mod blocks;
pub(crate) mod claim;
mod host_memory;
pub(crate) mod overflow;
pub(crate) mod physical;
pub(crate) mod pinned;
pub(crate) mod pools;
pub(crate) mod spilled;

use crate::driver::{AllocationHandle, DevicePointer};

/// Substitutes that guard may answer a request with, other than the driver's own memory for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Substitute {
    Nothing,
    /// A range of so many bytes; its address is written here.
    Range(*mut DevicePointer, u64),
    /// So many bytes of physical memory in another place; the handle is written here.
    Memory(*mut AllocationHandle, u64),
}
