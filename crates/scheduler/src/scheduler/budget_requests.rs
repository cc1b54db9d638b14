//! Answers running engines that request more memory before one of their allocations is refused.
//!
//! If unclaimed memory and idle engines are not enough, the request is declined and no engine is stopped.

use plimsoll_base::{Bytes, CardId, RunId};

use super::Scheduler;
use crate::effect::SchedulerEffect;
use crate::models::Drain;
use crate::state::BudgetRequest;

impl Scheduler {
    pub(super) fn budget_requested(&mut self, run: RunId, card: CardId, requested: Bytes, wanted: Bytes) {
        // The engine is blocked meanwhile, so it comes before waiting models.

        // Guard has one request at a time on each page; a second one would be answered twice.
        if self.runs.model_of(run).is_none() || self.budgets.iter().any(|request| request.run == run) {
            return;
        }
        let mut request = BudgetRequest { run, card, requested, wanted, after: Vec::new() };
        let missing = self.state().missing_for(&request);
        if missing.is_zero() {
            return self.grant(&request);
        }
        match self.state().idle_victims(&request, missing) {
            Some(victims) => {
                request.after.clone_from(&victims);
                self.budgets.push(request);
                for model in victims.into_iter().filter_map(|run| self.runs.model_of(run)).collect::<Vec<_>>()
                {
                    self.drain(model, Drain::Evict);
                }
            }
            // Stopping some runs without meeting the request would only cost their next clients a load.
            None => self.emit(SchedulerEffect::AnswerBudget { run, claim: None }),
        }
    }

    /// Grants requests that waited for nothing but the memory of `gone`.
    pub(super) fn resume_budgets(&mut self, gone: RunId) {
        self.budgets.iter_mut().for_each(|request| request.after.retain(|run| *run != gone));
        for request in self.budgets.extract_if(.., |request| request.after.is_empty()).collect::<Vec<_>>() {
            self.grant(&request);
        }
    }

    /// Raises the claim as far as the ledger has room, which may be less than requested.
    fn grant(&mut self, request: &BudgetRequest) {
        let BudgetRequest { run, card, wanted, .. } = request;
        let claim = self.raise(*run, card, *wanted);
        self.emit(SchedulerEffect::AnswerBudget { run: *run, claim });
    }
}
