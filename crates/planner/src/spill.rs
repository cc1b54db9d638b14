//! Advice to put the unused end of a cache into host memory, with the depth up to which nothing is read from there.

use plimsoll_base::{Advice, Bytes, Card, CardKind, Hint};
use plimsoll_pool::cache_head::CacheHead;

use crate::named::interface;
use crate::{CardPlan, PlanRequest};

/// Granule of a CUDA card's mappings.
const GRANULE: u64 = 2 << 20;
/// What guard leaves to the driver: at most a 64th of the card.
const DRIVER: Bytes = Bytes::mib(128);
const PART: u64 = 64;
/// Fewer positions at full speed are no advice: a system prompt has as many.
const WORTH_SAYING: u64 = 4096;

/// The hint, if the end of each card's cache is all that does not fit.
pub(super) fn hint(request: &PlanRequest<'_>, cards: &[CardPlan]) -> Option<Hint> {
    // Guard knows the driver of CUDA alone.
    if interface(request) != "CUDA" {
        return None;
    }
    let short: Vec<_> = request.cards.iter().zip(cards).filter(|(_, planned)| !planned.fits).collect();
    let heads: Vec<_> = short.iter().map(|(card, planned)| head(card, planned)).collect::<Option<_>>()?;
    let tokens = heads.iter().map(|(tokens, _)| *tokens).min().filter(|tokens| *tokens >= WORTH_SAYING)?;
    let spill: Bytes = heads.iter().map(|(_, spill)| *spill).sum();
    // The host's memory is not known here; one larger than the cards is rare.
    if spill > short.iter().map(|(card, _)| card.total).sum() {
        return None;
    }
    let caches = cards.iter().flat_map(|card| &card.caches);
    let per_thousand = caches.map(|cache| Bytes::new(cache.position_bytes()) * 1000).sum();
    Some(Hint::new(Advice::SpillCache { spill, tokens, per_thousand }))
}

/// Positions that stay on a card, and the bytes of its cache that do not.
fn head(card: &Card, planned: &CardPlan) -> Option<(u64, Bytes)> {
    // A second cache, as of a draft model, is divided only after the first is full.
    let [cache] = planned.caches.as_slice() else { return None };
    let size = Bytes::new(cache.size());
    let others = planned.peak.saturating_sub(size) + DRIVER.min(Bytes::new(card.total.get() / PART));
    let room = card.free.saturating_sub(others);
    let head = CacheHead::within(cache, GRANULE, room.get())
        .filter(|_| card.kind == CardKind::Cuda && !card.shares_host)?;
    Some((head.positions(), size.saturating_sub(Bytes::new(head.on_card()))))
}
