//! Provides the atomics of the shared budget ledger; a test replaces them by those of loom, a model checker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-wire --test loom` runs that test.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
