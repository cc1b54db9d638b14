//! Lists the tests of several crates that the command line uses. `src/lib.rs` includes this file, so that
//! they are one binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod chosen;
mod import;
mod plan;
mod report;
mod site;
mod verb;
