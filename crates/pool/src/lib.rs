//! Decides where a GPU memory allocator places and frees blocks, as pure arithmetic without CUDA, I/O or a
//! clock.
//!
//! A [`Policy`] hands out ranges of memory from a [`PoolDevice`]. The crate does not use `std`, because it is
//! part of guard (the preloaded library).
#![doc = include_str!("../README.md")]
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

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_pool;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
