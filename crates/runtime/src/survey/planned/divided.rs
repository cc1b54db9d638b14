//! Plans a model with the key `spill`, whose cache may overflow into host memory.

use plimsoll_base::{Bytes, CacheOverflow, Card, CardId, CardKind, NamedDemand, Reason};
use plimsoll_config::ConfiguredModel;
use plimsoll_planner::{CardPlan, DividedCard, Plan, guard_budget};
use plimsoll_probe::library::GUARD;

use super::{PlannedModel, sets};

impl PlannedModel {
    /// Whether the model's cache can overflow at all, on the first set of cards that it may use.
    pub(in crate::survey) fn check_spill(
        &self,
        entry: &ConfiguredModel,
        named: &NamedDemand,
    ) -> Result<(), Reason> {
        let refused = |text: &str| Reason::new("spill_refused", text);
        GUARD.find().map_err(|error| {
            let why = error.to_string().replace('\n', "; ");
            refused(&format!(
                "`spill` needs guard, which cannot be used: {why}; mend this, or remove \
                `spill`"
            ))
        })?;
        let cards = sets(entry, named, &self.machine).into_iter().next().unwrap_or_default();
        if !cards.iter().any(|card| card.kind == CardKind::Cuda && !card.shares_host) {
            return Err(refused(
                "`spill` is for CUDA cards with memory of their own, and the model may use none; remove `spill`",
            ));
        }
        let plan = self.plan(&cards)?;
        match plan.cards.iter().map(|card| card.caches.len()).max().unwrap_or(0) {
            0 => Err(refused(
                "`spill` moves the last positions of a cache, and the model has no cache of positions on its cards; \
                    remove `spill`",
            )),
            1 => Ok(()),
            _ => Err(refused(
                "`spill` divides one cache on a card, and the model has several, as with a draft model; remove `spill`, \
                    or the draft model",
            )),
        }
    }

    /// The share of each card if a cache without room there overflows. `None` where all fits, or where a
    /// cache that does not fit cannot be divided.
    ///
    /// DECISION: the share is what the card has free, but never less than the bound. So a model that would
    /// fit an empty card starts beside another one and unloads nothing.
    pub(super) fn divided(
        &self,
        plan: &Plan,
        peaks: &[Bytes],
        cards: &[Card],
    ) -> Option<Vec<(CardId, Bytes)>> {
        let parts = cards.iter().zip(&plan.cards).zip(peaks);
        let is_short = |((card, _), peak): &((&Card, &CardPlan), &Bytes)| **peak > card.free;
        if !parts.clone().any(|part| is_short(&part)) {
            return None;
        }
        let share = |part: ((&Card, &CardPlan), &Bytes)| {
            let ((card, planned), peak) = part;
            let least = if is_short(&part) { self.least(card, planned, *peak)? } else { *peak };
            Some((card.id.clone(), card.free.max(least).min(*peak)))
        };
        parts.map(share).collect()
    }

    /// The smallest share of a card, if that is less than the whole.
    pub(super) fn least(&self, card: &Card, planned: &CardPlan, peak: Bytes) -> Option<Bytes> {
        let least = DividedCard::new(card, planned, peak)?.least(self.spill?);
        (least < peak).then_some(least)
    }

    /// The cache's part in host memory with these shares.
    pub(super) fn overflow_of(&self, shares: &[(CardId, Bytes)], cards: &[Card]) -> Vec<CacheOverflow> {
        // As the engine will see its cards, and as guard counts.
        let guarded =
            |(card, (_, share)): (&Card, &(CardId, Bytes))| card.clone().guarded(guard_budget(card, *share));
        let guarded: Vec<Card> = cards.iter().zip(shares).map(guarded).collect();
        let Ok(plan) = self.plan(&guarded) else { return Vec::new() };
        let peaks = self.peaks(&plan, &guarded);
        let parts = guarded.iter().zip(&plan.cards).zip(peaks);
        let short = parts.filter(|((card, _), peak)| *peak > card.free);
        short
            .filter_map(|((card, planned), peak)| DividedCard::new(card, planned, peak)?.overflow())
            .collect()
    }
}
