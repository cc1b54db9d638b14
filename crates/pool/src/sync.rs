//! The atomics of this crate, in one place, so that loom can take them over and try every order of events:
//! `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-pool --test loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
