//! The part of `std` that guard and phantom need, for libraries that live in foreign processes.
//!
//! - [`lock`]: a futex lock of four bytes that allocates nothing and registers nothing.
//! - [`elf`]: a reader of objects that the dynamic loader has already mapped.
//! - `runtime`: global allocator and panic handler of the shipped libraries, over libc's `malloc` and
//!   `abort`.
//!
//! DECISION: the profile `guard` sets panic = abort, and only with it this crate is `no_std` and brings the
//! runtime. Every other profile builds an ordinary crate with `std`, so that unit tests and lints need no
//! second target.
#![cfg_attr(panic = "abort", no_std)]

pub mod elf;
pub mod lock;
#[cfg(panic = "abort")]
mod runtime;
