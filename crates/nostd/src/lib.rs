//! Replacement for the parts of `std` that Plimsoll's libraries need inside other programs' processes: guard
//! (preloaded into CUDA programs) and phantom (a ggml backend without a GPU).
//!
//! - [`lock`]: a futex lock of four bytes that allocates nothing and registers nothing.
//! - [`elf`]: a reader of objects that the dynamic loader has already mapped.
//! - [`heap`]: freed pages go back to the kernel. The daemon uses it too, which has no unsafe code of its own.
//! - `runtime`: global allocator and panic handler of the shipped libraries, over libc's `malloc` and
//!   `abort`.
//!
//! DECISION: the profile `guard` sets panic = abort; this crate is `no_std` and includes the runtime only
//! with that profile. Every other profile builds an ordinary crate with `std`, so unit tests and lints need
//! no second target.
#![cfg_attr(panic = "abort", no_std)]

pub mod elf;
pub mod heap;
pub mod lock;
#[cfg(panic = "abort")]
mod runtime;
