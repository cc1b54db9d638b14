//! `plimsoll measure`: measures the size of CUDA contexts, tests servers under load, and records memory over
//! time.
//!
//! - [`load`]: load tests of a server, and its client.
//! - [`watch`]: readings of a machine's memory, and [`record`], the format of their recordings.
//! - [`trend`]: the test for leaks.
//! - `command`: the verbs.
#![forbid(unsafe_code)]

mod command;
pub mod load;
pub mod record;
pub mod trend;
pub mod watch;

pub use command::{Arguments, PlanOfProcess, run, spelled};
