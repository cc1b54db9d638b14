//! Accounts for the device memory that the program holds, and claims budget for each new request.
//!
//! Before an allocation is passed to the driver, its bytes are claimed from the budget. A program and its
//! child processes share one budget.

pub(crate) mod blocks;
pub(crate) mod caches;
pub(crate) mod claim;
mod host_memory;
pub(crate) mod overflow;
pub(crate) mod physical;
pub(crate) mod pinned;
pub(crate) mod pools;
pub(crate) mod spilled;

use crate::driver::{AllocationHandle, DevicePointer};

/// Memory that guard may return for a request instead of ordinary device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Substitute {
    Nothing,
    /// A range of so many bytes; its address is written here.
    Range(*mut DevicePointer, u64),
    /// So many bytes of physical memory in another place; the handle is written here.
    Memory(*mut AllocationHandle, u64),
    /// What the hook itself requests in another place (see [`crate::ladder::ask_or`]).
    Request,
}
