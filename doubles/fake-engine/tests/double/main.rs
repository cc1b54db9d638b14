//! Tests of the fake engine's binary through its command line, pipes and socket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod endpoints;
mod faults;
mod lifecycle;
mod process;
