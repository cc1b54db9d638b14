//! Searches the largest value that fits: context, micro-batch, slots, layers, cache type, split over cards.
//!
//! A result is planned in full, and so is the next larger value, to show that it does not fit.

mod answer;
mod change;
mod price;
mod scale;
mod search;
mod split;

use self::change::saturated;
use self::search::LargestSearch;
use crate::{CELLS, PlanCalculator, PlanRequest, RequestCost, Reserve, Terms};

pub(crate) use self::answer::FitQuestion;
pub(crate) use self::scale::FitScale;
pub use answer::{CardLine, Dimension, Fit, FitAnswer, NextStep, TradeOff};
pub use change::{RequestChange, edited};
pub use price::{ClosedForms, CostModel, PlanPrice};

/// Answers each of `dimensions`, and gives advice where the unchanged request does not fit.
pub fn fit<P: CostModel>(
    request: &PlanRequest<'_>,
    price: &P,
    dimensions: &[Dimension],
) -> Result<Fit, P::Error> {
    let requested = price.price(&[], request.cards)?;
    let question = FitQuestion { request, price, requested };
    let answers = dimensions.iter().map(|&dimension| question.answer(dimension));
    let answers = answers.collect();
    Ok(question.finish(answers))
}

/// The change to the best value of one dimension that fits; `None` if none does.
pub fn best_change<P: CostModel>(
    request: &PlanRequest<'_>,
    price: &P,
    dimension: Dimension,
) -> Result<Option<RequestChange>, P::Error> {
    let requested = price.price(&[], request.cards)?;
    Ok(FitQuestion { request, price, requested }.bare_answer(dimension).change)
}

/// The first questions of [`confirmed_context`]: the guessed context and the step above it.
pub fn likely_contexts(request: &PlanRequest<'_>, guess: u64) -> Vec<Vec<RequestChange>> {
    let requested = Reserve::of_model(request, u64::from(request.params.context)).context;
    let most = most_steps(request, requested);
    // Two neighbours in parallel: if the guess is right, no more are needed.
    let first = (guess / CELLS).clamp(1, most);
    (first..=most.min(first + 1)).map(context).collect()
}

fn context(steps: u64) -> Vec<RequestChange> {
    vec![RequestChange::Context(saturated(steps * CELLS))]
}

/// The largest context that fits, found from a guess. One step of 256 tokens more does not fit, or exceeds
/// both the requested and the trained context. `Err` holds the largest that was seen to fit, where questions
/// were left open.
pub fn confirmed_context<P: CostModel>(
    request: &PlanRequest<'_>,
    price: &P,
    guess: Option<u64>,
) -> Result<Option<u64>, Option<u64>> {
    let requested = Reserve::of_model(request, u64::from(request.params.context)).context;
    let most = most_steps(request, requested);
    let slack =
        |changes: &[RequestChange]| Some(price.price(changes, request.cards).ok()?.slack(request.cards));
    let foresee =
        |steps: &[u64]| price.foresee(&steps.iter().map(|&steps| context(steps)).collect::<Vec<_>>());
    let mut search = LargestSearch::new(1..=most, |steps| slack(&context(steps)))
        .guess(guess.map(|tokens| (tokens / CELLS).clamp(1, most)))
        .foreseen(foresee);
    // The request itself is often priced already, and it is one of the steps if it is a multiple of them.
    if let Some(slack) = slack(&[]).filter(|_| requested.is_multiple_of(CELLS)) {
        search.know(requested / CELLS, slack);
    }
    let found = search.largest().map(|found| found.at * CELLS);
    // Without an answer to every question, a larger context may still fit.
    if price.is_spent() {
        return Err(search.seen().map(|steps| steps * CELLS));
    }
    Ok(found)
}

fn most_steps(request: &PlanRequest<'_>, requested: u64) -> u64 {
    // A context beyond the trained one is useful only where it was asked for.
    let streams = Reserve::of_model(request, requested).streams;
    trained_context(request, streams).max(requested).div_ceil(CELLS).max(1)
}

/// The longest context that the model was trained for, of all streams together; 0 where its header does not
/// say.
pub(super) fn trained_context(request: &PlanRequest<'_>, streams: u64) -> u64 {
    u64::from(request.model.hyper.context_train) * streams
}

/// The largest context that fits on these cards, at most the larger of the requested and the trained context.
pub(super) fn largest_context(calculator: &PlanCalculator<'_>, requested: &RequestCost) -> Option<u64> {
    let request = calculator.request;
    let most = most_steps(request, requested.reserve.context);
    let slack = |cost: RequestCost| PlanPrice::from(cost).slack(request.cards);
    let mut search = LargestSearch::new(1..=most, |steps| calculator.at(steps * CELLS).ok().map(slack));
    if requested.reserve.context.is_multiple_of(CELLS) {
        search.know(requested.reserve.context / CELLS, slack(requested.clone()));
    }
    Some(search.largest()?.at * CELLS)
}

/// Memory terms on the cards at one context length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextPoint {
    pub context: u64,
    pub cards: Vec<Terms>,
}

/// About `count` contexts in equal steps, up to the larger of the trained and the requested context, and
/// those of `besides`. Contexts that the engine refuses are left out.
pub fn course<P: CostModel>(
    request: &PlanRequest<'_>,
    price: &P,
    count: u64,
    besides: &[u64],
) -> Vec<ContextPoint> {
    let reserve = Reserve::of_model(request, u64::from(request.params.context));
    // The engine rounds each stream up to whole cells, so other contexts would not be points of their own.
    let grain = CELLS * reserve.streams;
    let most = trained_context(request, reserve.streams).max(reserve.context).next_multiple_of(grain);
    let step = most.div_ceil(count.max(1)).next_multiple_of(grain).max(grain);
    let mut contexts: Vec<u64> = (1..=most / step).map(|n| n * step).collect();
    contexts.extend([grain, most, reserve.context]);
    contexts.extend(besides.iter().filter(|&&context| context > 0 && context <= most));
    contexts.sort_unstable();
    contexts.dedup();
    let change = |&context: &u64| vec![RequestChange::Context(saturated(context))];
    price.foresee(&contexts.iter().map(change).collect::<Vec<_>>());
    let point = |context: u64| {
        let priced = price.price(&change(&context), request.cards).ok()?;
        Some(ContextPoint { context, cards: priced.cards })
    };
    contexts.into_iter().filter_map(point).collect()
}
