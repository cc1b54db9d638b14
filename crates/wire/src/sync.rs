//! Atomics of the shared budget ledger, which one test replaces by those of the model checker loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-wire --test loom` runs that test.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
