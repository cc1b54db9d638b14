//! Replaces parts of `std` in the two preloaded libraries, guard (limits GPU memory) and phantom (CUDA
//! without a card).
//!
//! - [`lock`]: a futex lock of four bytes that allocates no memory.
//! - [`elf`]: a reader of ELF objects that the dynamic loader has already mapped.
//! - [`heap`]: the release of freed heap pages to the kernel, also used by the daemon.
//! - [`code`]: the release of code pages that only the daemon's start needed.
//! - `runtime`: global allocator and panic handler of the shipped libraries.
//!
//! DECISION: this crate is `no_std` only with the profile `guard` (panic = abort), so unit tests and lints
//! need no second target.
#![cfg_attr(panic = "abort", no_std)]

pub mod code;
pub mod elf;
pub mod heap;
pub mod lock;
#[cfg(panic = "abort")]
mod runtime;
