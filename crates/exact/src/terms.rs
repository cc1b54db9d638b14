//! Sets the conditions of an engine run for `plan --exact` (environment, time limit, memory limit,
//! cancellation), and counts the runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_process::Environment;

/// Terms on which an engine is run to answer.
#[derive(Clone, Debug)]
pub struct RunTerms {
    /// The variables that the engine would have as a server.
    pub environment: Environment,
    /// Time limit of a run.
    pub time: Duration,
    /// Resident memory beyond which a run is ended.
    pub memory: Option<Bytes>,
    /// Ends runs, those under way included.
    pub cancelled: Cancelled,
    /// Answers are kept on disk.
    pub keeps: bool,
}

/// Time limit of a run. A model of a trillion parameters takes about a second.
const TIME: Duration = Duration::from_secs(30);

impl RunTerms {
    /// Terms for an engine that inherits this process's environment, and whose user waits for the answer.
    pub fn of_process(keeps: bool) -> Self {
        let environment = std::env::vars_os().collect();
        Self { environment, time: TIME, memory: None, cancelled: Cancelled::default(), keeps }
    }
}

/// Signal that ends engine runs; its clones are one signal.
#[derive(Clone, Debug, Default)]
pub struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bounds on engine runs: their number in all, and the time of the last.
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
        let times = if self.runs == 1 { "once".to_owned() } else { format!("{} times", self.runs) };
        write!(f, "the engine ran {times}")?;
        match self.kept {
            0 => Ok(()),
            1 => f.write_str("; 1 answer came from the cache"),
            kept => write!(f, "; {kept} answers came from the cache"),
        }
    }
}
