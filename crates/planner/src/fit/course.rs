//! Planned memory for a series of context lengths, for charts; every point is planned in full.

use super::change::{RequestChange, saturated};
use super::price::CostModel;
use crate::outcome::Terms;
use crate::request::PlanRequest;
use crate::reserve::{CELLS, Reserve};

/// Memory terms on the cards at one context length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextPoint {
    pub context: u64,
    pub cards: Vec<Terms>,
}

/// About `count` contexts in equal steps, up to the larger of the trained and the requested context, and those of
/// `besides`. Contexts that the engine refuses are left out.
pub fn course<P: CostModel>(
    request: &PlanRequest<'_>,
    price: &P,
    count: u64,
    besides: &[u64],
) -> Vec<ContextPoint> {
    let reserve = Reserve::of_model(request, u64::from(request.wish.context));
    // The engine rounds each stream up to whole cells, so other contexts would not be points of their own.
    let grain = CELLS * reserve.streams;
    let trained = u64::from(request.model.hyper.context_train);
    let most = trained.max(reserve.context).next_multiple_of(grain);
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
