//! The command line of Plimsoll: subcommands and their screens.
//!
//! A library, so that tests reach its parts; the program is `main.rs`, which only calls [`command::main`].
// Foreign ABIs are in `guard`, `phantom` and `probe`; the command line has no reason for unsafe code.
#![forbid(unsafe_code)]

mod check;
pub mod command;
mod replay;
mod report;
mod screen;
