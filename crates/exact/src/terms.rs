//! Terms of an engine run: its environment, the memory that it may take, and a signal to end it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_launch::Environment;

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
