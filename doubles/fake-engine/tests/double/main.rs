//! Tests of the fake engine's binary through its command line, pipes and socket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

/// The program's own sources, whose unit tests run here: each binary more is linked and stored by itself.
#[path = "../../src/main.rs"]
#[allow(dead_code, reason = "`main` is called by the program alone")]
mod program;

mod endpoints;
mod faults;
mod lifecycle;
mod process;
