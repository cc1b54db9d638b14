//! Places a model whose memory plan is at hand, by answering each question about its memory from the plan.

use plimsoll_base::{Hint, MemoryModel};

use plimsoll_scheduler::place::{
    CardSet, CardTenant, Ledger, NeedAnswer, NeedAnswers, PlacementQuery, PlacementVerdict, PlanAdvice,
    Reservations, place,
};

/// What the model takes of each set of cards.
pub(crate) fn answers(demand: &dyn MemoryModel, sets: &[CardSet]) -> Vec<NeedAnswer> {
    let answer = |set: &CardSet| NeedAnswer {
        cards: set.iter().map(|card| (card.id.clone(), card.free)).collect(),
        ignores_free: demand.ignores_free(set),
        shares: demand.on(set),
    };
    sets.iter().map(answer).collect()
}

/// Asks again with the answers of the plan, until it lacks none.
pub(crate) fn with_answers<T>(
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
pub(crate) fn place_planned(
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
pub(crate) fn advise(demand: &dyn MemoryModel, advice: &mut PlanAdvice, hints: &mut Vec<Hint>) {
    if !advice.cards.is_empty() {
        let of_plan = demand.hints(&advice.cards);
        advice.fill(hints, of_plan);
    }
}
