//! Tests of the public interface of crates that the command line shows; `src/lib.rs` includes this file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod chosen;
mod import;
mod plan;
mod report;
mod verb;
