//! Splits a cache that does not fit on its card, and computes the context up to which nothing is read from
//! host memory.
//!
//! Guard divides the cache by position (`plimsoll_pool::cache_head`). These figures say beforehand where.

use plimsoll_base::{Advice, Bytes, CacheOverflow, Card, CardKind, Counting, Hint, SpillAdvice, SpillWay};
use plimsoll_pool::cache_head::{CacheHead, yielded};
use plimsoll_wire::cache::CacheLayout;

use crate::named::interface;
use crate::{CardPlan, PlanRequest};

/// Granule of a CUDA card's mappings.
const GRANULE: u64 = 2 << 20;
/// Memory that guard leaves to the driver, and within a budget to small requests: at most a 64th of either
/// (`guard/src/policy/room.rs`).
const DRIVER: Bytes = Bytes::mib(128);
const SMALL_REQUESTS: Bytes = Bytes::mib(32);
const PART: u64 = 64;
/// Host memory that guard keeps for exchanges, at most.
const EXCHANGE: Bytes = Bytes::mib(8);
/// Fewer positions at full speed are no advice: a system prompt has as many.
const WORTH_SAYING: u64 = 4096;

/// A card of a plan whose cache can be divided by position.
#[derive(Clone, Copy, Debug)]
pub struct DividedCard<'a> {
    card: &'a Card,
    cache: &'a CacheLayout,
    /// Bytes that have to be on the card.
    others: Bytes,
}

impl<'a> DividedCard<'a> {
    /// `peak` is all that the model takes of the card; `None` where its cache cannot be divided.
    pub fn new(card: &'a Card, planned: &'a CardPlan, peak: Bytes) -> Option<Self> {
        // A second cache, as of a draft model, is divided only after the first is full.
        let [cache] = planned.caches.as_slice() else { return None };
        let others = peak.saturating_sub(Bytes::new(cache.size()));
        let is_divided = card.kind == CardKind::Cuda && !card.shares_host;
        is_divided.then_some(Self { card, cache, others })
    }

    /// The smallest share of the card for the model, if at most `spill` may be in host memory.
    pub fn least(self, spill: Bytes) -> Bytes {
        let spill = spill.saturating_sub(EXCHANGE).min(Bytes::new(yielded(self.cache, GRANULE)));
        let of_cache = Bytes::new(self.cache.size()).saturating_sub(spill);
        self.others + of_cache + for_driver(self.card) + SMALL_REQUESTS
    }

    /// The cache on the free memory of the card; `None` if not even what has no positions fits.
    pub fn overflow(self) -> Option<CacheOverflow> {
        let kept = match self.card.counting {
            Counting::Driver => for_driver(self.card),
            // The card is a budget, out of which the driver takes nothing.
            Counting::Guard => SMALL_REQUESTS.min(Bytes::new(self.card.total.get() / PART)),
        };
        let room = self.card.free.saturating_sub(kept + self.others);
        let head = CacheHead::within(self.cache, GRANULE, room.get())?;
        Some(CacheOverflow {
            card: self.card.id.clone(),
            tokens: head.positions(),
            on_host: Bytes::new(self.cache.size()).saturating_sub(Bytes::new(head.on_card())),
            position_bytes: Bytes::new(self.cache.position_bytes()),
        })
    }
}

/// Guard's budget for an engine that gets `share` of the card. The rest is for memory that the driver takes
/// without a request.
pub fn guard_budget(card: &Card, share: Bytes) -> Bytes {
    share.saturating_sub(for_driver(card))
}

fn for_driver(card: &Card) -> Bytes {
    DRIVER.min(Bytes::new(card.total.get() / PART))
}

/// Advice to put the unused end of a cache into host memory, if the end of each card's cache is all that does
/// not fit.
pub(super) fn hint(request: &PlanRequest<'_>, cards: &[CardPlan]) -> Option<Hint> {
    // Guard knows the driver of CUDA alone.
    if interface(request) != "CUDA" {
        return None;
    }
    let short: Vec<_> = request.cards.iter().zip(cards).filter(|(_, planned)| !planned.fits).collect();
    let divided =
        |(card, planned): &(&Card, &CardPlan)| DividedCard::new(card, planned, planned.peak)?.overflow();
    let heads: Vec<CacheOverflow> = short.iter().map(divided).collect::<Option<_>>()?;
    let tokens = heads.iter().map(|head| head.tokens).min().filter(|tokens| *tokens >= WORTH_SAYING)?;
    let spill: Bytes = heads.iter().map(|head| head.on_host).sum();
    // The host's memory is not known here; one larger than the cards is rare.
    if spill > short.iter().map(|(card, _)| card.total).sum() {
        return None;
    }
    let caches = cards.iter().flat_map(|card| &card.caches);
    let per_thousand = caches.map(|cache| Bytes::new(cache.position_bytes()) * 1000).sum();
    Some(Hint::new(Advice::SpillCache(SpillAdvice {
        way: SpillWay::Run,
        spill,
        tokens,
        per_thousand,
        bus: None,
    })))
}
