//! GPU memory allocator policies, as pure arithmetic on offsets, without CUDA, I/O or a clock.
//!
//! A [`Policy`] hands out ranges of memory from a [`PoolDevice`]. The crate does not use `std`, because it is
//! part of guard (the preloaded library).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cache_head;
pub mod demand;
mod device;
pub mod exchange;
mod policies;
mod policy;
pub mod replay;

pub use device::{Address, CapturedGraph, DeviceEvent, OutOfMemory, PoolDevice, Stream};
pub use policies::*;
pub use policy::{Block, Policy, ServedPolicy, Trim};

// Unit tests check policies on the card that `tests` use, which names this crate as they do.
#[cfg(test)]
extern crate self as plimsoll_pool;
#[cfg(test)]
#[path = "../tests/simulated/card.rs"]
mod simulated;
