//! Atomics of the shared budget ledger, replaced by loom's in the model test.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-wire --test loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
