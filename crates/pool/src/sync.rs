//! Atomics of this crate, replaced by loom's in the model test.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-pool --test loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
