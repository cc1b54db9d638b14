//! Recomputes all derived values of the scheduler, and reports any contradiction.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::RunId;

use super::Scheduler;
use crate::place::AuditError;
use crate::queue::RequestPlace;
use crate::time::{ModelId, RequestId};

/// Contradiction in the scheduler's state, which is a defect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateAuditError {
    #[error(transparent)]
    Ledger(#[from] AuditError),
    #[error("a defect of plimsoll: the list `{list}` contradicts the state of the models")]
    List { list: &'static str },
    #[error("a defect of plimsoll: the list of running engines contradicts the state of the models")]
    Living,
    #[error("the list of queued requests contradicts the models' queues")]
    Queued,
    #[error("the engine {run:?} counts {counted} requests in flight, but {sent} were sent to it")]
    InFlight { run: RunId, counted: usize, sent: usize },
}

impl Scheduler {
    /// Recomputes what is kept beside the models, requests and runs, and compares.
    pub fn audit(&self) -> Result<(), StateAuditError> {
        self.placements.ledger.audit()?;
        if let Some(list) = self.models.stale_list() {
            return Err(StateAuditError::List { list });
        }
        self.audit_runs()?;
        self.audit_requests()
    }

    fn audit_runs(&self) -> Result<(), StateAuditError> {
        let of_models = self.models.iter().filter_map(|(id, slot)| Some((slot.run.as_ref()?.id, id)));
        let of_models: BTreeMap<RunId, ModelId> = of_models.collect();
        if of_models != self.runs.living {
            return Err(StateAuditError::Living);
        }
        for (_, _, run) in self.models.running() {
            let is_sent = |place: &RequestPlace| *place == RequestPlace::Sent(run.id);
            let sent = self.queue.places().filter(|(_, place)| is_sent(place)).count();
            let counted = usize::try_from(run.in_flight()).unwrap_or(usize::MAX);
            if counted != sent {
                return Err(StateAuditError::InFlight { run: run.id, counted, sent });
            }
        }
        Ok(())
    }

    fn audit_requests(&self) -> Result<(), StateAuditError> {
        let places = self.queue.places().filter(|(_, place)| *place == RequestPlace::Queued);
        let queued: BTreeSet<RequestId> = places.map(|(id, _)| id).collect();
        let in_lines: Vec<RequestId> = self.models.iter().flat_map(|(_, slot)| slot.line.iter()).collect();
        let lines_agree = in_lines.len() == queued.len() && in_lines.iter().all(|id| queued.contains(id));
        if lines_agree && self.queue.deadlines_are_of(&queued) {
            Ok(())
        } else {
            Err(StateAuditError::Queued)
        }
    }
}
