//! Memory recordings of a machine and of a program.
//!
//! DECISION: files of `/proc` stay open and are read again from the start. The process list is rescanned only after
//! the kernel has reported a new pid, and each tick is one write. A measurement therefore takes some tens of
//! microseconds, and a SIGKILL loses only the current sample. The cards are read through the sampler process,
//! as everywhere else.

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
