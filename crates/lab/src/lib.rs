//! Load tests of a server and recordings of a machine's memory, for `plimsoll measure`.
#![forbid(unsafe_code)]

pub mod load;
pub mod watch;
