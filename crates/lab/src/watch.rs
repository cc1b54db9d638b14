//! Memory recordings of a machine or a program (`plimsoll watch`).
//!
//! DECISION: files of `/proc` stay open and are read again from the start. The process list is scanned again
//! only after the kernel has assigned a new PID, and each sample is one write. So a sample takes some tens of
//! microseconds, and a SIGKILL loses only the current sample. The cards are read through the helper process
//! `plimsoll look`, as everywhere else.

mod collector;
mod guards;
mod kernel_log;
mod machine;
mod processes;
mod recording;
mod snapshots;

pub use self::collector::{Collector, WatchTarget};
pub use self::recording::{Recording, RecordingError};
pub use self::snapshots::about;
