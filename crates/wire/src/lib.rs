//! The bytes that separate processes agree on. No dependency, no allocation, no behaviour.
//!
//! The names of environment variables (`env`), llama-server's control channel (`control`), what guard is asked to do
//! (`options`), the page on which guard and daemon meet (`page`), the ledger of a tree of processes (`tree`) and the record of a
//! trace (`trace`).
#![no_std]
#![forbid(unsafe_code)]

pub mod control;
pub mod env;
pub mod options;
pub mod page;
mod sync;
pub mod trace;
pub mod tree;
