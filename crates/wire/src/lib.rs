//! Interfaces between separate processes: names, text formats, and shared-memory layouts.
//!
//! - [`mod@env`]: names of environment variables.
//! - [`control`]: llama-server's control channel.
//! - [`options`]: the line of options for guard, the preloaded library.
//! - [`page`]: the shared file in which a guarded process reports its figures.
//! - [`tree`]: the shared ledger in which all processes of one command claim their budget. It includes the
//!   claim algorithm, which is lock-free and tested with loom.
//! - [`trace`]: the record format of guard's trace.
//!
//! The crate has no dependency, allocates nothing and makes no system call, so it can be part of any process.
#![no_std]
#![forbid(unsafe_code)]

pub mod control;
pub mod env;
pub mod options;
pub mod page;
mod sync;
pub mod trace;
pub mod tree;
