//! The acting half of Plimsoll: everything that looks at the machine, starts processes or speaks on sockets.
//!
//! A library so that `tests/` can reach each boundary; the program itself is `main.rs`, which only calls
//! [`command::main`].
#![forbid(unsafe_code)]

pub mod command;
pub mod launch;
pub mod probe;
mod report;
#[allow(
    dead_code,
    unused_imports,
    reason = "the owner of the models joins it to `serve`"
)]
mod route;
mod screen;
