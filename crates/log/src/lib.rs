//! Writes log lines: the program's own on stderr and in a file, and the output of engines.
//!
//! No caller waits for a reader or the disk; lines without room are counted.
#![forbid(unsafe_code)]

mod file;
mod line;
mod output;
mod queue;
mod ring;

pub use file::LogFile;
pub use output::{FlushLog, LogOptions, LogOutput};
pub use ring::{Log, LogLine, LogSource};
