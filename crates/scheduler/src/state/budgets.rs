//! Keeps running engines' requests for more memory, which wait until other engines have stopped.

use plimsoll_base::{Bytes, CardId, Order, RunId};

use super::StateRef;
use crate::place::{EvictionCandidate, cheapest};
use crate::time::ModelId;

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

#[derive(Clone, Debug, Default)]
pub(crate) struct BudgetRequests(Vec<BudgetRequest>);

impl BudgetRequests {
    pub(crate) fn push(&mut self, request: BudgetRequest) {
        self.0.push(request);
    }

    /// True if the run has a request that waits.
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.0.iter().any(|request| request.run == run)
    }

    /// The request for which `victim` stops.
    pub(crate) fn behind(&self, victim: RunId) -> Option<&BudgetRequest> {
        self.0.iter().find(|request| request.after.contains(&victim))
    }

    /// Takes the return of a run's memory, and returns requests that wait for no other run.
    pub(crate) fn resume(&mut self, gone: RunId) -> Vec<BudgetRequest> {
        for request in &mut self.0 {
            request.after.retain(|run| *run != gone);
        }
        self.0.extract_if(.., |request| request.after.is_empty()).collect()
    }

    /// Drops the request of a run that has ended.
    pub(crate) fn forget(&mut self, run: RunId) {
        self.0.retain(|request| request.run != run);
    }
}

impl StateRef<'_> {
    /// Memory that is missing for the request: in the ledger, or according to the driver.
    pub(crate) fn missing_for(self, request: &BudgetRequest) -> Bytes {
        let Some(account) = self.ledger.account(&request.card) else {
            return Bytes::MAX;
        };
        let raise = request.wanted.saturating_sub(account.occupied_by(request.run));
        let in_ledger = raise.saturating_sub(account.free());
        // The driver may have less than the ledger says: fragmentation, and other processes since the last
        // reading.
        in_ledger.max(request.requested.saturating_sub(account.card().free))
    }

    /// The cheapest set of idle runs that frees `missing`, least recently used first.
    pub(crate) fn idle_victims(
        self,
        request: &BudgetRequest,
        missing: Bytes,
    ) -> Option<Vec<(RunId, ModelId)>> {
        let account = self.ledger.account(&request.card)?;
        let mut idle: Vec<(u64, RunId, ModelId, u64)> = self
            .idle_on(std::slice::from_ref(&request.card))
            .into_iter()
            .filter_map(|model| {
                let slot = self.model(model)?;
                let run = slot.run.as_ref()?;
                (run.id != request.run).then_some((run.stamp, run.id, model, self.eviction_cost(slot, run)))
            })
            .collect();
        // By last use, as for a load: equal sets are decided by the least recently used run.
        idle.order();
        let candidates: Vec<EvictionCandidate> = idle
            .iter()
            .map(|(_, run, _, cost)| EvictionCandidate {
                run: *run,
                frees: vec![account.occupied_by(*run)],
                cost: *cost,
                wait: 0,
            })
            .collect();
        let chosen = cheapest(&[missing], &candidates)?;
        let victims = idle.into_iter().filter(|(_, run, ..)| chosen.contains(run));
        Some(victims.map(|(_, run, model, _)| (run, model)).collect())
    }
}
