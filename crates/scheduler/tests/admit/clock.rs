//! Simulation of the scheduler with realistic times: loads take seconds and share a disk, clients give up and
//! retry, engines hang or crash.
//!
//! The measure is lost time: what calls of clients took beyond their own answers. Times are in milliseconds.
mod bounds;
mod client;
mod disk;
mod effects;
mod engine;
mod machine;
mod oracle;
mod random;
mod rows;
mod speed;
mod table;
mod tally;
mod worlds;

/// A second.
const S: u64 = 1000;
