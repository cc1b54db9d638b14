//! Lists the modules that test the public interface of `plimsoll-model`. `src/lib.rs` includes this file, so
//! that they and the unit tests are one binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod header_round_trip;
mod hostile_headers;
mod mutants;
