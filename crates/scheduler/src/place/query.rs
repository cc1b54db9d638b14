//! Input and result of one placement: the model, the engines in its way, and the cards chosen or the reason
//! for none.

use plimsoll_base::{Advice, Bytes, CardId, Hint, ModelNeed, Placement, Reason, RunId, Share};
use serde::Serialize;

use super::answers::{CardSet, NeedAnswers};
use super::ledger::Ledger;
use crate::time::ModelId;

/// The model to place, with the conditions of its placement.
#[derive(Clone, Copy, Debug)]
pub struct PlacementQuery<'a> {
    pub name: &'a str,
    pub need: &'a ModelNeed,
    /// What the plan has told, if one tells the need.
    pub answers: &'a NeedAnswers,
    pub learned: LearnedNeed,
    /// Empty for any card.
    pub allowed: &'a [CardId],
    /// Port that no other run may have.
    pub port: Option<u16>,
    /// Models that have waited longer and may not run beside it.
    pub apart: usize,
}

impl PlacementQuery<'_> {
    /// True for a run that may not be beside the model: it has the model's port, or the configuration says
    /// so.
    pub(super) fn is_apart(&self, tenant: &CardTenant) -> bool {
        tenant.apart || self.port.is_some() && tenant.port == self.port
    }
}

/// Need on each card beyond the plan, as earlier runs of the model taught it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedNeed {
    /// A run was measured to take it.
    pub measured: Bytes,
    /// A run ran out of memory without it.
    pub lacked: Bytes,
}

impl LearnedNeed {
    pub fn total(self) -> Bytes {
        self.measured + self.lacked
    }
}

/// Readiness of a run to stop for another model; smaller values are readier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CardStanding {
    /// The process is ending or has ended; its memory will become free.
    #[default]
    Leaving,
    Idle,
    /// Has requests in flight, and may be made to drain.
    Busy,
    /// Loads, or has only just begun to serve.
    Protected,
    /// Stops for a model that has waited longer.
    Promised,
    /// Pinned.
    Stays,
}

/// A run that holds a claim, with its readiness to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardTenant {
    pub run: RunId,
    pub standing: CardStanding,
    /// Mark in the order of use; smaller is longer ago.
    pub last_used: u64,
    /// Cost of stopping it: the time that its clients lose by its next load, in milliseconds.
    pub cost: u64,
    /// The time that those who wait lose until it is free to stop, in milliseconds.
    pub wait: u64,
    /// The configuration pins its model, which no order changes.
    pub is_pinned_by_file: bool,
    /// Port that its engine always listens on.
    pub port: Option<u16>,
    /// The configuration lets it not run beside the model that is placed.
    pub apart: bool,
}

/// Memory and runs reserved for models that have waited longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    shares: Vec<Share>,
    pub(super) runs: usize,
    models: Vec<ModelId>,
    calm: Vec<CardId>,
}

impl Reservations {
    /// Reserves the memory that `placement` needs beyond the memory that its own victims will free.
    pub fn reserve(&mut self, placement: &Placement, victims: &[RunId], ledger: &Ledger) {
        for share in &placement.shares {
            let account = ledger.account(&share.card);
            let freed = account.map_or(Bytes::ZERO, |a| victims.iter().map(|run| a.occupied_by(*run)).sum());
            self.shares.push(Share::new(share.card.clone(), share.bytes.saturating_sub(freed)));
        }
    }

    /// Reserves for a load its memory, one more run unless it begins in place of a victim, and the model's
    /// place among those that may not run beside it.
    pub fn reserve_load(
        &mut self,
        model: ModelId,
        placement: &Placement,
        victims: &[RunId],
        ledger: &Ledger,
    ) {
        self.reserve(placement, victims, ledger);
        self.runs += usize::from(victims.is_empty());
        self.models.push(model);
    }

    pub(crate) fn models(&self) -> &[ModelId] {
        &self.models
    }

    /// Lets nothing start on these cards, because a model waits for them to be calm.
    pub(crate) fn keep_calm(&mut self, placement: &Placement) {
        self.calm.extend(placement.cards().cloned());
    }

    /// True if a model that comes before waits for one of these cards to be calm.
    pub(crate) fn is_kept_calm(&self, placement: &Placement) -> bool {
        placement.cards().any(|card| self.calm.contains(card))
    }

    pub(crate) fn on(&self, card: &CardId) -> Bytes {
        self.shares.iter().filter(|share| share.card == *card).map(|share| share.bytes).sum()
    }
}

// Ties are broken by fewest cards, then by the cheapest, fewest and least recently used runs, then by
// tightest fit.
/// Result of a placement.
#[derive(Clone, Debug, PartialEq)]
pub enum PlacementVerdict {
    Fits(Placement),
    /// The model fits once these runs have stopped. It `waits` where some of them are busy, loading or new;
    /// else all are ending or idle.
    FitsAfter {
        placement: Placement,
        stop: Vec<RunId>,
        waits: bool,
    },
    /// The model fits after those that have waited longer have been placed.
    Later,
    /// The plan has to tell first what the model takes of these sets of cards.
    Unplanned(Vec<CardSet>),
    Never(Box<NoPlacement>),
}

/// Reasons why a model fits nowhere.
#[derive(Clone, Debug, PartialEq)]
pub struct NoPlacement {
    /// The model would fit if other processes and pinned models held less.
    pub crowded_out: bool,
    pub reason: Reason,
    pub hints: Vec<Hint>,
    pub advice: PlanAdvice,
}

/// Where a refusal has room for the advice of the model's plan, which the caller adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanAdvice {
    /// The cards, each with the memory that it could give the model; empty for no advice.
    pub cards: CardSet,
    /// The model, in a refusal of its requests.
    pub model: Option<ModelId>,
    /// The place of the advice among the hints.
    pub place: usize,
}

impl PlanAdvice {
    /// Puts the plan's advice for these cards among the hints.
    pub fn fill(&mut self, hints: &mut Vec<Hint>, of_plan: Vec<Hint>) {
        let place = self.place.min(hints.len());
        // The plan takes what a card lacks for memory of other programs; the scheduler knows who holds it.
        // It also knows whether there is a card beside these.
        let is_known_better =
            |hint: &Hint| matches!(hint.advice, Advice::FreeCard { .. } | Advice::AnotherCard);
        let of_plan = of_plan.into_iter().filter(|hint| !is_known_better(hint));
        hints.splice(place..place, of_plan);
        self.cards.clear();
    }
}
