//! What each context costs, for pictures: a table of re-planned points, the asked one among them.

use super::super::outcome::Terms;
use super::super::request::PlanRequest;
use super::super::reserve::{CELLS, Reserve};
use super::change::Change;
use super::price::Price;

/// What is on the cards at one context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub context: u64,
    pub cards: Vec<Terms>,
}

/// About `count` contexts up to the larger of what the model was trained for and what is asked for, in equal steps;
/// those of `besides` are among them. What the engine refuses is left out.
pub fn course<P: Price>(request: &PlanRequest<'_>, price: &P, count: u64, besides: &[u64]) -> Vec<Point> {
    let reserve = Reserve::of_model(request, u64::from(request.wish.context));
    let grain = CELLS * reserve.streams;
    let trained = u64::from(request.model.hyper.context_train);
    let most = trained.max(reserve.context).next_multiple_of(grain);
    let step = most.div_ceil(count.max(1)).next_multiple_of(grain).max(grain);
    let mut contexts: Vec<u64> = (1..=most / step).map(|n| n * step).collect();
    contexts.extend([grain, most, reserve.context]);
    contexts.extend(besides.iter().filter(|&&context| context > 0 && context <= most));
    contexts.sort_unstable();
    contexts.dedup();
    let change = |context: u64| Some(vec![Change::Context(u32::try_from(context).ok()?)]);
    let questions: Vec<Vec<Change>> = contexts.iter().filter_map(|&context| change(context)).collect();
    price.foresee(&questions);
    let point = |context: u64| {
        let priced = price.price(&change(context)?, request.cards).ok()?;
        Some(Point {
            context,
            cards: priced.cards,
        })
    };
    contexts.into_iter().filter_map(point).collect()
}
