//! The ladder and the spill: real processes that ask for more than there is.

mod border;
mod cascade;
mod ladder;
mod matrix;
mod memory;
mod order;
mod ranges;
mod run;
mod waiting;
