//! Does it fit, and up to which context?
//!
//! The largest context is found by halving over re-planned costs: memory never falls as the context grows.

use super::cost::{Cost, Coster, peak};
use super::request::PlanRequest;
use super::reserve::CELLS;

pub(super) fn fits(request: &PlanRequest<'_>, cost: &Cost) -> bool {
    request
        .cards
        .iter()
        .zip(&cost.cards)
        .all(|(card, terms)| peak(terms) <= card.free)
}

/// The largest context that fits on these cards, at most the larger of what was asked for and what the model was
/// trained for. `None` if not even the smallest fits, or where the context costs nothing to speak of.
pub(super) fn largest_context(request: &PlanRequest<'_>, coster: &Coster<'_>, asked: &Cost) -> Option<u64> {
    let fits_at = |steps: u64| coster.at(steps * CELLS).is_ok_and(|cost| fits(request, &cost));
    let trained = u64::from(request.model.hyper.context_train);
    let most = trained.max(asked.reserve.context).div_ceil(CELLS).max(1);
    if fits_at(most) {
        return Some(most * CELLS);
    }
    if !fits_at(1) {
        return None;
    }
    let (mut low, mut high) = (1, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits_at(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low * CELLS)
}
