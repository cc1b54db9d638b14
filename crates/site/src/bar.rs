//! Draws a plan as a bar for each card, divided into weights, cache and buffers, as text or SVG.

use plimsoll_base::Bytes;
use plimsoll_planner::{CardPlan, Plan, PlanTerm, Terms};
use plimsoll_report::{Bar, Segment, TERMS, bars};

/// Returns a card's terms in the order of [`TERMS`], without the memory of other processes.
pub fn terms(terms: &Terms) -> [&PlanTerm; 5] {
    [&terms.weights, &terms.kv, &terms.compute, &terms.context, &terms.pool]
}

/// Returns the sizes of a card's terms; an unknown size counts as none.
pub(crate) fn amounts(of: &Terms) -> [Bytes; 5] {
    terms(of).map(PlanTerm::known)
}

/// Returns the memory of a card that other processes hold.
pub fn occupied(card: &CardPlan) -> Bytes {
    card.total.saturating_sub(card.free)
}

/// Returns the bar of a card; its whole width stands for `least`, or for more where the plan needs more.
pub fn plan_bar(card: &CardPlan, least: Bytes) -> Bar {
    // Other processes come first: they hold their memory already, so ours is stacked on top of it.
    let sizes = std::iter::once(occupied(card)).chain(amounts(&card.terms));
    let segments: Vec<Segment> =
        TERMS.into_iter().zip(sizes).map(|(style, bytes)| Segment { style, bytes }).collect();
    let end: Bytes = segments.iter().map(|segment| segment.bytes).sum();
    Bar {
        label: card.id.to_string(),
        segments,
        total: card.total,
        // A plan that does not fit must extend beyond the load line instead of being clipped.
        full: card.total.max(least).max(end),
    }
}

/// `fits, 12 MiB to spare` or `does not fit, 12 MiB too much`.
pub fn verdict(card: &CardPlan) -> String {
    let size = Bytes::new(card.headroom.unsigned_abs());
    if card.fits { format!("fits, {size} to spare") } else { format!("does not fit, {size} too much") }
}

/// Draws a plan as a standalone SVG document, a bar for each card.
pub fn svg(plan: &Plan) -> String {
    let of = |card: &CardPlan| {
        let heading = format!(
            "{}: {}: peak {}, {} of {} free",
            card.id,
            verdict(card),
            card.peak,
            card.free,
            card.total
        );
        (heading, plan_bar(card, card.total))
    };
    let cards: Vec<_> = plan.cards.iter().map(of).collect();
    let title = format!("{}, context {}", plan.model, plan.context);
    let warnings: Vec<String> = plan.warnings.iter().map(|warning| warning.text.clone()).collect();
    bars(&title, &warnings, &cards)
}
