//! Ways in which an engine process ends, such as a crash or an out-of-memory error.

use crate::{Bytes, Reason};

/// Phase of an engine in which memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Loading,
    Serving,
}

/// Kind of an engine process's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It stopped on request, or ended by itself with success.
    // Exit status 0, or any end after we sent a signal: neither is a failure of the model.
    Expected,
    Crashed {
        reason: Reason,
    },
    OutOfMemory {
        stage: Stage,
        reason: Reason,
        /// Missing bytes, where the engine's log states them.
        shortfall: Option<Bytes>,
    },
    /// There never was a process: the program is missing, is not executable, its port was taken.
    Unstartable {
        reason: Reason,
    },
}
