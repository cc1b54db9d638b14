//! Lists the ways in which an engine process can end, such as a crash or an out-of-memory error.

use crate::{Bytes, CardId, Reason};

/// Phase of an engine in which memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Loading,
    Serving,
}

/// Memory that an engine lacked, by guard's record of the refused allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    pub bytes: Bytes,
    pub limit: AllocationLimit,
}

/// Limit that an allocation met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationLimit {
    /// The engine's own budget, whatever was free.
    Budget,
    /// The card's memory, which other processes may have taken.
    Driver {
        /// `None` if the engine was not given the card.
        card: Option<CardId>,
        /// Free memory of the card at the refusal.
        free: Bytes,
        /// Memory that the engine held at the refusal, by guard.
        occupied: Bytes,
    },
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
        /// `None` unless guard recorded a refused allocation.
        shortfall: Option<Shortfall>,
    },
    /// It never began to load: the program is missing or rejects its command line, the model's file cannot be
    /// read, its port was taken.
    Unstartable {
        reason: Reason,
        /// Every other start ends in the same way until a file, the configuration or the machine is changed.
        lasts: bool,
    },
}
