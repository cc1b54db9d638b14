//! Finds the rates of the cards of a request: measured on this machine, or shipped.

use plimsoll_base::Card;

use super::rates::SpeedRates;
use super::shipped::H200;
use crate::{PlanRequest, contexts};

/// Rates of the cards that a model is spread over, in the order of its layout.
pub(super) struct KnownRates<'a> {
    pub(super) cards: Vec<&'a SpeedRates>,
    /// The text of their source.
    pub(super) label: String,
}

impl<'a> KnownRates<'a> {
    /// `None` if a card has none, or if there is no card.
    pub(super) fn of(request: &PlanRequest<'a>, cards: impl Iterator<Item = &'a Card>) -> Option<Self> {
        let found: Vec<(&SpeedRates, String)> =
            cards.map(|card| rates(request, card)).collect::<Option<_>>()?;
        let label = found.first()?.1.clone();
        Some(Self { cards: found.into_iter().map(|(rates, _)| rates).collect(), label })
    }

    /// The rates of the first card, which stand for the host's too.
    pub(super) fn first(&self) -> &'a SpeedRates {
        self.cards[0]
    }
}

fn rates<'a>(request: &PlanRequest<'a>, card: &Card) -> Option<(&'a SpeedRates, String)> {
    let measured = contexts::find(request.contexts, &card.name, request.engine);
    if let Some((rates, row)) = measured.and_then(|row| Some((row.speed.as_ref()?, row))) {
        return Some((rates, row.label()));
    }
    let name = "H200";
    let is_h200 = card.name.split(' ').any(|word| word == name);
    is_h200.then(|| (&H200, "H200, driver 580.159.04, llama.cpp 0.5.0 (three synthetic models)".to_owned()))
}
