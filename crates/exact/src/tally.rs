//! Number of engine runs and of kept answers, and the limit on further runs.

use std::fmt;
use std::time::Instant;

/// Bounds on further engine runs, in number and in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) runs: u32,
    pub(super) end: Instant,
}

/// The cost of the answers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of engine runs.
    pub(super) runs: u32,
    /// Number of answers from the on-disk cache.
    pub(super) kept: u32,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.runs {
            1 => f.write_str("the engine ran once")?,
            runs => write!(f, "the engine ran {runs} times")?,
        }
        match self.kept {
            0 => Ok(()),
            1 => f.write_str("; 1 answer came from the cache"),
            kept => write!(f, "; {kept} answers came from the cache"),
        }
    }
}
