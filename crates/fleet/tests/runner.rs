//! Lists the modules that test the public interface of `plimsoll-fleet`. `src/lib.rs` includes this file, so
//! that they and the unit tests are one binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod mutants;
mod simulator;
mod size;
