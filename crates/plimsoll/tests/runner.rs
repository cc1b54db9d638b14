//! Lists all tests of the program as one binary, because each further binary would be linked and stored
//! separately.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod aarch64;
mod bench;
mod bugreport;
mod built;
mod child;
mod daemon;
mod doctor;
mod documents;
mod engine;
mod fleet;
mod gpu;
mod http;
mod launch;
mod pages;
mod plan;
mod probe;
mod real_engine;
mod reclaim;
mod run;
mod serve;
mod soak;
mod watch;
