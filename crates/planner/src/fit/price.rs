//! Who says what the engine takes.
//!
//! DECISION: searching knows nothing of formulas. It asks one question, [`Price::price`]: what is on each card with
//! these changes on these cards? [`Formulas`] answers from the closed forms; `plan --exact` answers by running the
//! engine itself, so that whatever is found is found in the engine's own numbers.

use plimsoll_base::{Bytes, Card};

use super::super::cost::{self, PlanCalculator, RequestCost};
use super::super::error::PlanError;
use super::super::outcome::{HostTerms, Terms};
use super::super::request::PlanRequest;
use super::change::{Change, changed};

/// What a model takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priced {
    /// One entry for each card, in the order of the cards.
    pub cards: Vec<Terms>,
    pub host: HostTerms,
}

impl Priced {
    pub fn peak(&self, card: usize) -> Bytes {
        self.cards.get(card).map_or(Bytes::ZERO, cost::peak)
    }

    /// What stays free on the tightest card; below 0 what is missing on all cards together.
    pub fn slack(&self, cards: &[Card]) -> i64 {
        slack_of(cards, self.cards.iter().map(cost::peak))
    }

    pub fn fits(&self, cards: &[Card]) -> bool {
        self.slack(cards) >= 0
    }
}

/// [`Priced::slack`] of these peaks.
pub fn slack_of(cards: &[Card], peaks: impl Iterator<Item = Bytes>) -> i64 {
    let headrooms = cards.iter().zip(peaks).map(|(card, peak)| beyond(card, peak));
    let (short, spare) = headrooms.fold((0_i64, i64::MAX), |(short, spare), headroom| {
        (short.saturating_add(headroom.min(0)), spare.min(headroom))
    });
    if short < 0 { short } else { spare }
}

fn beyond(card: &Card, peak: Bytes) -> i64 {
    super::super::signed_difference(card.free.get(), peak.get())
}

pub(super) fn headroom(card: &Card, terms: &Terms) -> i64 {
    beyond(card, cost::peak(terms))
}

/// Says what the model takes with changes to what was asked. An error is what the engine would refuse.
pub trait Price {
    type Error: std::fmt::Display;

    fn price(&self, changes: &[Change], cards: &[Card]) -> Result<Priced, Self::Error>;

    /// These will be asked next on the request's cards: whoever can answers them side by side.
    fn foresee(&self, _questions: &[Vec<Change>]) {}

    /// What may stay free with these changes, at once. Where to begin a search; nothing that is answered rests on it.
    fn estimate(&self, _changes: &[Change]) -> Option<i64> {
        None
    }

    /// True once nothing more is answered, so that what has no price may still fit.
    fn is_spent(&self) -> bool {
        false
    }
}

/// The default level: the closed forms.
#[derive(Clone, Copy, Debug)]
pub struct Formulas<'a>(pub PlanRequest<'a>);

impl Price for Formulas<'_> {
    type Error = PlanError;

    fn price(&self, changes: &[Change], cards: &[Card]) -> Result<Priced, PlanError> {
        let wish = changed(self.0.wish, changes);
        let request = PlanRequest {
            wish: &wish,
            cards,
            ..self.0
        };
        let cost = PlanCalculator::new(&request)?.at(u64::from(wish.context))?;
        Ok(cost.into())
    }
}

impl From<RequestCost> for Priced {
    fn from(cost: RequestCost) -> Self {
        Self {
            cards: cost.cards,
            host: cost.host,
        }
    }
}
