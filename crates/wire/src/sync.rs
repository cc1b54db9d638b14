//! The atomics of the tree's ledger, in one place, so that loom can take them over and try every order of events:
//! `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-wire --test loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
