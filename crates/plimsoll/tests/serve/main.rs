//! `plimsoll serve` as a process, in front of fake engines: what clients see, and that nothing is left behind.

mod daemon;
mod faults;
mod formats;
mod http;
mod isolation;
mod limits;
mod operator;
mod storm;
mod surface;
mod waiting;
