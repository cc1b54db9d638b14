//! The acting half of Plimsoll: everything that looks at the machine, starts processes or speaks on sockets.
//!
//! A library so that `tests/` can reach each boundary; the program itself is `main.rs`, which only calls
//! [`command::main`].
#![forbid(unsafe_code)]

mod check;
pub mod command;
mod config;
mod contexts;
mod daemon;
mod exact;
pub mod folder;
pub mod guard;
pub mod launch;
pub mod library;
mod load;
mod owner;
pub mod probe;
pub mod reclaim;
mod replay;
mod report;
mod route;
mod screen;
pub mod sysroot;
mod watch;
