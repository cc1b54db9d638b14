//! Load tests of a server and recordings of a machine's memory, for `plimsoll soak`, `sweep` and `watch`.
#![forbid(unsafe_code)]

pub mod load;
pub mod watch;
