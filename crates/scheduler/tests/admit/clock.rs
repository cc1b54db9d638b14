//! The scheduler at real sizes, in simulated time: loads of seconds that share a disk, answers of seconds to
//! a minute, clients that give up and ask again, engines that hang, crash, fail to load or ignore a polite
//! stop.
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
