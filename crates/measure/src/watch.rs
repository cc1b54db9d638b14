//! Records the memory of a machine or a program (`plimsoll measure watch`).
//!
//! Each sample is one write, so a SIGKILL loses only the current sample.

mod collector;
mod guards;
mod header;
mod kernel_log;
mod machine;
// DECISION: files of `/proc` stay open, and processes are listed again only after a new PID.
mod processes;
mod recording;

pub use self::collector::{Collector, WatchTarget};
pub use self::header::about;
pub use self::recording::{Recording, RecordingError};
