//! Replacement for the parts of `std` that Plimsoll's libraries need inside other programs' processes.
//!
//! These libraries are guard (preloaded into CUDA programs) and phantom (CUDA without a card, for `plan
//! --exact`).
//!
//! - [`lock`]: a futex lock of four bytes that allocates nothing and registers nothing.
//! - [`elf`]: a reader of objects that the dynamic loader has already mapped.
//! - [`heap`]: the return of freed pages to the kernel. The daemon also uses it, because it has no unsafe
//!   code of its own.
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
