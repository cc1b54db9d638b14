//! Allocator policies as pure offset logic over an abstract device: no CUDA, no I/O, no clock.
//!
//! A [`Policy`] hands out ranges of memory that it got from a [`Device`]. It has the shape of RAPIDS RMM's
//! `device_memory_resource`, so that policies stack and traces of one can be replayed over another.
//! [`Direct`] is the simplest policy and the baseline of all measurements. [`Simulated`] is a device with a
//! given size, streams, events and graphs, which records every broken rule.
//!
//! The crate needs `alloc` only, so that guard can carry it into unknown programs.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod adaptors;
pub mod demand;
mod device;
pub mod generate;
mod policies;
mod policy;
pub mod replay;
mod simulated;
mod sync;
pub mod trace;

pub use adaptors::{Budget, Failing, Limited, Sink, Spilled, Tag, TagUse, Traced, Tracked};
pub use device::{Address, CapturedGraph, Device, DeviceEvent, OutOfMemory, Stream};
pub use policies::*;
pub use policy::{Block, Broken, Policy, Trim};
pub use simulated::{Calls, Faults, Latency, Simulated, Violation};
