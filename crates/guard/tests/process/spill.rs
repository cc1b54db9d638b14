//! The ladder and the spill: real processes that ask for more than there is.

mod ladder;
#[allow(dead_code, reason = "its users are being written")]
mod run;
