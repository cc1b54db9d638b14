//! Watches the memory of a machine and of a program, and writes its course down.
//!
//! DECISION: files of `/proc` stay open and are read again from their beginning, processes are sought only
//! when the kernel says that a new one has begun, and what one tick found goes out in one write. That keeps a
//! look at some tens of microseconds, and a SIGKILL at the loss of the sample under way. The cards are asked
//! through the lookout process, as everywhere.

mod collector;
mod guards;
mod kernel_log;
mod machine;
mod processes;
mod recording;
mod snapshots;

pub use self::collector::{Collector, Subject};
pub use self::recording::{RecordError, Recording};
pub use self::snapshots::about;
