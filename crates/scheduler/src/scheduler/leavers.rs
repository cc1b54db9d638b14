//! Remembers clients that disconnected while they waited, and preloads that made way for requests: both are
//! likely to be tried again.

use super::Scheduler;
use crate::models::{LeftClient, ModelSlot, RequestedState, RunState};
use crate::queue::{RequestPlace, RequestState};

impl Scheduler {
    /// Takes an answer that is complete.
    pub(super) fn answered(&mut self, request: &RequestState) {
        let now = self.now;
        let took = now.since(request.sent);
        if let Some(slot) = self.models.get_mut(request.model) {
            if !request.slotless {
                slot.answered(took);
            }
            if let RequestPlace::Sent(id) = request.place
                && let Some(run) = slot.run_mut(id)
            {
                run.answered = run.answered.saturating_add(1);
                run.shows_work(now);
            }
        }
    }

    // DECISION: a client that left is expected again for the time of a load, if it had waited for half of
    // that. A client with a time limit shorter than the load would never be answered otherwise: its load
    // would be called off each time.
    /// Takes the end of a wait whose client has left.
    pub(super) fn note_left(&mut self, request: &RequestState) {
        let now = self.now;
        let Some(slot) = self.models.get(request.model) else { return };
        let loading = slot.run.as_ref().filter(|run| run.is_loading());
        if slot.run.as_ref().is_some_and(RunState::takes_requests) {
            return;
        }
        // A load that takes longer than the last one is as long as it has been.
        let load = self.state().expected_load(slot);
        let expected = loading.map_or(load, |run| load.max(now.since(run.started)));
        let expected = expected.min(2 * now.since(request.arrived));
        let Some(slot) = self.models.get_mut(request.model) else { return };
        let since = slot.left.map_or(request.arrived, |left| left.since.min(request.arrived));
        let until = now + expected;
        slot.left = Some(LeftClient { since, until });
        slot.forget_left(now);
        if slot.left.is_some() {
            self.arm(until);
        }
    }

    /// Loads again what the configuration loads, if it fits into memory that nobody waits for.
    pub(super) fn bring_back(&mut self) {
        let busy = |slot: &ModelSlot| {
            !matches!(slot.seeking(), RequestedState::Nothing)
                || slot.run.as_ref().is_some_and(|run| !run.is_ready())
        };
        if self.closing.is_some() || self.models.iter().any(|(_, slot)| busy(slot)) {
            return;
        }
        let fits = |slot: &ModelSlot| slot.comes_back && slot.run.is_none() && !slot.record.failed;
        let free = self.ledger().accounts().iter().map(|account| account.free()).max().unwrap_or_default();
        let next = self.models.iter().find(|(_, slot)| fits(slot) && slot.last_claim <= free);
        let Some(id) = next.map(|(id, _)| id) else { return };
        if let Some(slot) = self.models.get_mut(id) {
            (slot.preload, slot.comes_back) = (true, false);
        }
        self.seek(id);
    }
}
