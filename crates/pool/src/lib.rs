//! GPU memory allocator policies, as pure offset arithmetic over an abstract device without CUDA, I/O or a
//! clock.
//!
//! A [`Policy`] hands out ranges of memory that it got from a [`PoolDevice`]. Its interface is that of RAPIDS
//! RMM's `device_memory_resource`, so policies can be stacked, and a trace recorded with one can be replayed
//! with another. [`Direct`] is the simplest policy and the baseline of all measurements. `tests/simulated`
//! has a simulated card with a given size, streams, events and graphs, which records every violation of the
//! driver's rules.
//!
//! The crate does not use `std`, because it is part of guard, the library that is preloaded into arbitrary
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
