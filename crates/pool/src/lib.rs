//! GPU memory allocator policies as pure offset arithmetic over an abstract device: no CUDA, no I/O, no
//! clock.
//!
//! A [`Policy`] hands out ranges of memory that it got from a [`PoolDevice`]. Its interface is that of RAPIDS
//! RMM's `device_memory_resource`, so policies can be stacked, and a trace recorded with one can be replayed
//! with another. [`Direct`] is the simplest policy and the baseline of all measurements. `tests/simulated`
//! has a card with a given size, streams, events and graphs, which records every broken rule.
//!
//! The crate needs only `alloc`, because the library guard, which contains it, is preloaded into arbitrary
//! programs.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod demand;
mod device;
pub mod generate;
mod policies;
mod policy;
pub mod replay;
pub mod trace;

pub use device::{Address, CapturedGraph, DeviceEvent, OutOfMemory, PoolDevice, Stream};
pub use policies::*;
pub use policy::{Block, Broken, Policy, ServedPolicy, Trim};

// Unit tests check policies on the card that `tests` use, which names this crate as they do.
#[cfg(test)]
extern crate self as plimsoll_pool;
#[cfg(test)]
#[path = "../tests/simulated/card.rs"]
mod simulated;
