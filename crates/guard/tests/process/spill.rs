//! Tests of refused allocations in real processes: guard's remedies (the ladder) and placement in host memory
//! (the spill).

mod cascade;
mod exchange;
mod ladder;
mod matrix;
mod memory;
mod order;
mod positions;
mod ranges;
mod run;
mod waiting;
