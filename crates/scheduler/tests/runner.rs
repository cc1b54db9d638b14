//! Tests of the public interface of this crate; `src/lib.rs` includes this file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "admit/main.rs"]
mod admit;
mod place;
