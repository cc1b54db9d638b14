//! Command line of Plimsoll: subcommands and their reports.
//!
//! This crate is a library so that tests can use its parts; the program `main.rs` only calls
//! [`command::main`].
// Foreign ABIs are in `guard`, `phantom` and `probe`; the command line has no reason for unsafe code.
#![forbid(unsafe_code)]
#![cfg_attr(windows, allow(dead_code, unused_imports, reason = "verbs that are not there on Windows use it"))]

#[cfg(unix)]
mod check;
#[cfg(unix)]
pub mod command;
#[cfg(windows)]
#[path = "command/windows.rs"]
pub mod command;
mod screen;

pub(crate) use plimsoll_verb::{report, terminal};

// Tests of crates below, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
