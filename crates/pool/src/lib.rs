//! Allocator policies as pure offset logic over an abstract device. No CUDA, no I/O, no clock.
//!
//! A [`Policy`] hands out ranges of memory that it got from a [`Device`]; it has the shape of RAPIDS RMM's
//! `device_memory_resource`, so that policies stack and traces of one can be replayed over another. [`Direct`] is the
//! simplest one and what every other is measured against; [`Simulated`] is a device of so many bytes.
#![forbid(unsafe_code)]

mod device;
mod direct;
mod policy;

pub use device::{Address, Device, OutOfMemory, Simulated};
pub use direct::Direct;
pub use policy::{Block, Policy, Stream};
