//! Adds advice from a model's memory plan to refused requests. The latest advice is kept, because all
//! requests of a queue get the same.

use plimsoll_base::Hint;
use plimsoll_scheduler::SchedulerEffect;
use plimsoll_scheduler::place::PlanAdvice;

use super::status::ModelStatuses;

/// The advice for the last refusal: a queue is refused with the same for each request.
#[derive(Debug, Default)]
pub(super) struct LastAdvice(Option<(PlanAdvice, Vec<Hint>)>);

impl LastAdvice {
    /// Adds the advice of the model's plan to a refusal.
    pub(super) fn complete(&mut self, effect: &mut SchedulerEffect, statuses: &ModelStatuses) {
        let SchedulerEffect::Refuse { refusal, .. } = effect else { return };
        let Some(model) = refusal.advice.model else { return };
        let known = self.0.take_if(|(advice, _)| *advice == refusal.advice);
        let (advice, of_plan) = known.unwrap_or_else(|| {
            let demand = statuses.demand(model);
            let of_plan = demand.map_or_else(Vec::new, |demand| demand.hints(&refusal.advice.cards));
            (refusal.advice.clone(), of_plan)
        });
        refusal.advice.fill(&mut refusal.hints, of_plan.clone());
        self.0 = Some((advice, of_plan));
    }
}
