//! Puts idle engines to sleep, so that they free memory, and wakes them for the next request.
//!
//! A sleeping engine keeps its claim (the memory that it may take), but another model may borrow the part
//! that it has freed.

use plimsoll_base::RunId;

use super::Scheduler;
use crate::models::{ModelSlot, RunSleep, RunState};
use crate::time::ModelId;

impl Scheduler {
    pub(super) fn slept(&mut self, run: RunId) {
        let claim = self.ledger().claim_shares(run);
        let Some((_, slot)) = self.living_mut(run) else { return };
        let quiet = slot.line.is_empty();
        // A request that is on its way wakes it.
        let run = slot.run.as_mut().filter(|run| quiet && run.is_idle() && run.sleep == RunSleep::Awake);
        if let Some(run) = run {
            run.sleep = RunSleep::Asleep;
            run.needs_awake = claim;
            if let Some(occupancy) = &mut run.occupancy {
                occupancy.forget();
            }
            self.mark_dirty();
        }
    }

    /// Notes that a run's claim was lowered for others.
    pub(super) fn lent(&mut self, run: RunId) {
        if let Some((_, run)) = self.run_mut(run).filter(|(_, run)| run.sleep == RunSleep::Asleep) {
            run.sleep = RunSleep::Lent;
        }
    }

    // DECISION: a request for an engine whose memory was lent waits as one that is deeper than its run's
    // claim: in the same order as loads, and others leave for it. Sent at once, it would take memory that is
    // another model's.
    /// Looks for the memory that was lent, if a request waits for it; true while the run may not be sent one.
    pub(super) fn is_lent(&mut self, id: ModelId) -> bool {
        let lent = |run: &RunState| run.sleep == RunSleep::Lent && run.takes_requests();
        let is_lent = |slot: &&ModelSlot| slot.run.as_ref().is_some_and(lent);
        let Some(slot) = self.models.get(id).filter(is_lent) else { return false };
        if slot.depth_wait().is_none() && !slot.line.is_empty() {
            self.wait_for_depth(id);
        }
        true
    }

    /// Takes back what was lent of a run that is awake, as far as it is free.
    pub(super) fn woke(&mut self, run_id: RunId) {
        let Some((_, run)) = self.run_mut(run_id).filter(|(_, run)| run.is_ready()) else { return };
        if std::mem::replace(&mut run.sleep, RunSleep::Awake) == RunSleep::Lent {
            for share in std::mem::take(&mut run.needs_awake) {
                self.raise(run_id, &share.card, share.bytes);
                self.claim_changed(run_id, &share.card);
            }
        }
    }

    /// True for an engine that holds less than its claim until its next request.
    pub fn is_asleep(&self, run: RunId) -> bool {
        self.state().live(run).is_some_and(|(.., run)| run.is_asleep())
    }
}
