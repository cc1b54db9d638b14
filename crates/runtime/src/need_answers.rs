//! Answers the scheduler's questions how much memory a model needs, from its plan and from its engine's
//! report.

use plimsoll_base::{Hint, MemoryModel};
use plimsoll_scheduler::SchedulerEffect;
use plimsoll_scheduler::place::{
    CardSet, CardTenant, Ledger, NeedAnswer, NeedAnswers, PlacementQuery, PlacementVerdict, PlanAdvice,
    Reservations, place,
};

use super::status::ModelStatuses;

/// What the model takes of each set of cards.
pub(super) fn answers(demand: &dyn MemoryModel, sets: &[CardSet]) -> Vec<NeedAnswer> {
    let answer = |set: &CardSet| NeedAnswer {
        cards: set.iter().map(|card| (card.id.clone(), card.free)).collect(),
        ignores_free: demand.ignores_free(set),
        shares: demand.on(set),
    };
    sets.iter().map(answer).collect()
}

/// Asks again with the answers of the plan, until it lacks none.
pub(super) fn with_answers<T>(
    demand: &dyn MemoryModel,
    answered: &mut NeedAnswers,
    ask: impl Fn(&NeedAnswers) -> Result<T, Vec<CardSet>>,
) -> T {
    loop {
        match ask(answered) {
            Ok(found) => return found,
            // Each round asks about other sets, of which there are few.
            Err(sets) => answered.extend(answers(demand, &sets)),
        }
    }
}

/// Places a model beside these, with the advice of its plan where it fits on no cards.
pub(super) fn place_planned(
    query: &PlacementQuery<'_>,
    demand: &dyn MemoryModel,
    ledger: &Ledger,
    tenants: &[CardTenant],
) -> PlacementVerdict {
    let ask = |answers: &NeedAnswers| match place(
        &PlacementQuery { answers, ..*query },
        ledger,
        &Reservations::default(),
        tenants,
    ) {
        PlacementVerdict::Unplanned(sets) => Err(sets),
        verdict => Ok(verdict),
    };
    let mut verdict = with_answers(demand, &mut query.answers.clone(), ask);
    if let PlacementVerdict::Never(never) = &mut verdict {
        advise(demand, &mut never.advice, &mut never.hints);
    }
    verdict
}

/// Puts the advice of the plan among the hints.
pub(super) fn advise(demand: &dyn MemoryModel, advice: &mut PlanAdvice, hints: &mut Vec<Hint>) {
    if !advice.cards.is_empty() {
        let of_plan = demand.hints(&advice.cards);
        advice.fill(hints, of_plan);
    }
}

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
