//! Protects the start of an engine that measures its card's free memory: nothing else may change on the card
//! meanwhile.
//!
//! vLLM takes its cache by the free memory that it finds, and refuses to start if that grows between two
//! looks (`vllm/v1/worker/gpu_worker.py:determine_available_memory`: "Error in memory profiling",
//! vllm#56830).

use plimsoll_base::{Placement, RunId};

use super::StateRef;
use crate::models::{RoomObstacle, RunState};
use crate::place::Reservations;
use crate::time::ModelId;

// DECISION: no load begins, no run stops and no memory is asked back on a card while a start on it measures.
// A process that fails is killed all the same, and a shutdown waits for nothing.
impl StateRef<'_> {
    /// True if a start of another run measures the free memory of one of these cards.
    pub(crate) fn is_measured(self, placement: &Placement, own: RunId) -> bool {
        self.measuring(placement).any(|(_, run)| run != own)
    }

    fn measuring<'a>(self, placement: &'a Placement) -> impl Iterator<Item = (ModelId, RunId)> + 'a
    where
        Self: 'a,
    {
        let running = self.models.running().filter(|(_, _, run)| run.measures_now());
        running.filter(|(_, _, run)| share_a_card(&run.placement, placement)).map(|(id, _, run)| (id, run.id))
    }

    /// Reason to delay a load there: a start that measures, or, for a model that measures itself, memory that
    /// is about to change.
    pub(crate) fn in_motion(
        self,
        id: ModelId,
        placement: &Placement,
        reserved: &Reservations,
    ) -> Option<RoomObstacle> {
        if let Some((model, _)) = self.measuring(placement).next() {
            return Some(RoomObstacle::Motion { of: Some(model) });
        }
        let waits = reserved.is_kept_calm(placement).then_some(RoomObstacle::Motion { of: None });
        waits.or_else(|| self.model(id)?.spec.measures_free.then(|| self.changing(placement)).flatten())
    }

    /// Memory of these cards that loads and ends of others are changing.
    fn changing(self, placement: &Placement) -> Option<RoomObstacle> {
        let changes = |run: &RunState| !run.is_ready() && share_a_card(&run.placement, placement);
        if let Some((model, ..)) = self.models.running().find(|(_, _, run)| changes(run)) {
            return Some(RoomObstacle::Motion { of: Some(model) });
        }
        let accounts = placement.cards().filter_map(|card| self.ledger.account(card));
        let mut claims = accounts.flat_map(|account| account.claims());
        let outstanding = claims.any(|claim| self.runs.leaving.contains(&claim.run));
        outstanding.then_some(RoomObstacle::Motion { of: None })
    }
}

/// True if both take memory of one card.
fn share_a_card(one: &Placement, other: &Placement) -> bool {
    one.shares.iter().any(|share| !share.bytes.is_zero() && !other.on(&share.card).is_zero())
}
