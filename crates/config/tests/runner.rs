//! Lists the modules that test the public interface of `plimsoll-config`. `src/lib.rs` includes this file, so
//! that they and the unit tests are one binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod all_mistakes;
mod compose;
mod exposure;
#[cfg(unix)]
mod hostile_config;
mod keys;
mod llama_swap;
mod llama_swap_users;
mod mutants;
mod native;
mod preset;
mod serve_keys;
mod typical_mistakes;
