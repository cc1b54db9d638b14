//! Tests of the public interface of this crate; `src/lib.rs` includes this file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod bookkeeping_speed;
mod properties;
mod recorded;
#[path = "simulated/card.rs"]
pub(crate) mod simulated;
mod simulated_card;
