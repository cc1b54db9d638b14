//! Ends of engine processes, as the diagnosis reports them to the scheduler.

use crate::{Bytes, Reason};

/// When memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Loading,
    Serving,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to stop and did, or ended by itself with success.
    Expected,
    Crashed {
        reason: Reason,
    },
    OutOfMemory {
        stage: Stage,
        reason: Reason,
        /// How much more it would have needed, where its own words tell.
        shortfall: Option<Bytes>,
    },
    /// There never was a process: the program is missing, is not executable, its port was taken.
    Unstartable {
        reason: Reason,
    },
}
