//! `plimsoll serve` as a process, in front of fake engines: what clients see, and that nothing is left behind.

mod daemon;
mod faults;
mod http;
mod isolation;
mod storm;
mod waiting;
