//! Load tests of a server and recordings of a machine's memory: `soak`, `sweep`, `soak --beside` and `watch`.
#![forbid(unsafe_code)]

pub mod load;
pub mod watch;
