//! Admits a model's first queued request if the engine's granted memory covers its tokens.
//!
//! The request is admitted if the engine's claim (the memory that it may take) covers its depth.

use plimsoll_base::RunId;

use super::StateRef;
use crate::models::ModelSlot;
use crate::occupancy::Occupancy;
use crate::time::{ModelId, RequestId};

// DECISION: while the first request waits, no request behind it that uses the KV cache is admitted. Otherwise
// a deep request might wait for ever.
/// Next step for the first request of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DepthGate {
    Open,
    /// The depth of the request must be measured first, or more exactly.
    Measure {
        exact: bool,
    },
    /// The driver measures the depth, or all slots of the engine are taken. The request waits here, where
    /// clients take turns.
    Closed,
    /// The claim does not cover its depth.
    TooDeep,
}

impl StateRef<'_> {
    pub(crate) fn gate(self, slot: &ModelSlot, id: RequestId) -> DepthGate {
        let (Some((run, occupancy)), Some(request)) = (slot.tracked(), self.queue.get(id)) else {
            return DepthGate::Open;
        };
        if request.measuring {
            return DepthGate::Closed;
        }
        let Some(depth) = request.depth else { return DepthGate::Measure { exact: false } };
        let tokens = depth.tokens(occupancy.slots());
        match self.covers(run.id, occupancy) {
            // Embeddings and the like leave the cache alone; they pass whatever the claim covers.
            _ if tokens == 0 => DepthGate::Open,
            _ if occupancy.is_full() => DepthGate::Closed,
            Some(covered) if occupancy.with(tokens) <= covered => DepthGate::Open,
            // Counting costs the engine a tokenisation, so it is asked only if the bound does not fit.
            _ if !depth.exact => DepthGate::Measure { exact: true },
            _ => DepthGate::TooDeep,
        }
    }

    /// Depth that the run's claim covers.
    pub(crate) fn covers(self, run: RunId, occupancy: &Occupancy) -> Option<u64> {
        occupancy.covered(|card| self.occupied_by(run, card))
    }

    /// Queued requests of a model with a depth that is neither known nor being measured, and the run to
    /// measure them with.
    pub(crate) fn unmeasured(self, id: ModelId) -> Option<(RunId, Vec<RequestId>)> {
        let slot = self.model(id)?;
        let run = slot.tracked().filter(|(run, _)| run.takes_requests())?.0.id;
        let unknown = |id: &RequestId| {
            let request = self.queue.get(*id);
            request.is_some_and(|request| request.depth.is_none() && !request.measuring)
        };
        Some((run, slot.line.iter().filter(unknown).collect()))
    }
}
