//! `core::diagnose` from outside: our own logs, hostile input, and the order in which bytes arrive.

mod formats;
mod hostile;
mod logs;
mod long_lines;
mod told;
