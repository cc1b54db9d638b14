//! Queue of requests for more memory from running engines. Each waits until other engines have stopped.

use plimsoll_base::{Bytes, CardId, Order, RunId};

use super::StateRef;
use crate::models::{ModelSlot, RunState};
use crate::place::{EvictionCandidate, cheapest};

#[derive(Clone, Debug)]
pub(crate) struct BudgetRequest {
    pub(crate) run: RunId,
    pub(crate) card: CardId,
    pub(crate) requested: Bytes,
    /// Memory of the card that the run will hold if the request is granted.
    pub(crate) wanted: Bytes,
    /// Runs that stop for this request and whose memory is not free yet.
    pub(crate) after: Vec<RunId>,
}

impl StateRef<'_> {
    /// Memory that is missing for the request: in the ledger, or according to the driver.
    pub(crate) fn missing_for(self, request: &BudgetRequest) -> Bytes {
        let Some(account) = self.ledger.account(&request.card) else { return Bytes::MAX };
        let raise = request.wanted.saturating_sub(account.occupied_by(request.run));
        let in_ledger = if raise.is_zero() { Bytes::ZERO } else { account.lacking(raise) };
        // The driver may have less than the ledger says: fragmentation, and other processes since the last
        // reading.
        in_ledger.max(request.requested.saturating_sub(account.card().free))
    }

    /// The cheapest set of idle runs that frees `missing`, least recently used first.
    pub(crate) fn idle_victims(self, request: &BudgetRequest, missing: Bytes) -> Option<Vec<RunId>> {
        // By last use, as for a load: equal sets are decided by the least recently used run.
        let candidates = self.candidates_on(&request.card, |slot, run| {
            run.is_idle() && !slot.is_pinned() && run.id != request.run
        });
        cheapest(&[missing], &candidates)
    }

    /// Runs that hold memory of the card, of those that the filter takes; the least recently used first.
    pub(crate) fn candidates_on(
        self,
        card: &CardId,
        which: impl Fn(&ModelSlot, &RunState) -> bool,
    ) -> Vec<EvictionCandidate> {
        let running = self.models.running().filter(|(_, slot, run)| which(slot, run));
        let mut here: Vec<_> = running
            .map(|(_, slot, run)| (run, self.occupied_by(run.id, card), self.eviction_cost(slot, run)))
            .filter(|(_, frees, _)| !frees.is_zero())
            .collect();
        here.order_by_key(|(run, ..)| run.stamp);
        here.into_iter()
            .map(|(run, frees, cost)| EvictionCandidate { run: run.id, frees: vec![frees], cost, wait: 0 })
            .collect()
    }
}
