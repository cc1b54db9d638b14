//! Lists the modules that test the public interface of `plimsoll-pool`. `src/lib.rs` includes this file, so
//! that they and the unit tests are one binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod bookkeeping_speed;
mod properties;
mod recorded;
#[path = "simulated/card.rs"]
pub(crate) mod simulated;
mod simulated_card;
