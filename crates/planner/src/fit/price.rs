//! Computes the memory of each card after a change of the request, for the search.
//!
//! The memory is computed by the planner's formulas or, for `plan --exact`, measured by running the engine.

use plimsoll_base::{Bytes, Card};

use super::change::{RequestChange, changed};
use crate::{HostTerms, PlanCalculator, PlanError, PlanRequest, RequestCost, Terms};

/// Memory terms of a model on every card and on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPrice {
    /// One entry for each card, in the order of the cards.
    pub cards: Vec<Terms>,
    pub host: HostTerms,
}

impl PlanPrice {
    pub fn peak(&self, card: usize) -> Bytes {
        self.cards.get(card).map_or(Bytes::ZERO, Terms::peak)
    }

    /// Free bytes on the tightest card; below 0, the bytes missing on all cards together.
    pub fn slack(&self, cards: &[Card]) -> i64 {
        let headrooms = cards.iter().zip(&self.cards).map(|(card, terms)| terms.headroom(card.free));
        // Missing bytes are summed, because moving work from one short card to another gains nothing.
        let (short, spare) = headrooms.fold((0_i64, i64::MAX), |(short, spare), headroom| {
            (short.saturating_add(headroom.min(0)), spare.min(headroom))
        });
        if short < 0 { short } else { spare }
    }

    pub fn fits(&self, cards: &[Card]) -> bool {
        self.slack(cards) >= 0
    }
}

/// Computes the memory of a request with changes. An error is a refusal by the engine.
pub trait CostModel {
    type Error: std::fmt::Display;

    fn price(&self, changes: &[RequestChange], cards: &[Card]) -> Result<PlanPrice, Self::Error>;

    /// Announces the next questions on the request's cards, which an implementation may answer in parallel.
    fn foresee(&self, _questions: &[Vec<RequestChange>]) {}

    /// Quick estimate of free memory after these changes; only a starting point for the search.
    fn estimate(&self, _changes: &[RequestChange]) -> Option<i64> {
        None
    }

    /// True once no more questions are answered: changes without a price may then still fit.
    fn is_spent(&self) -> bool {
        false
    }
}

/// The default price model: the planner's formulas.
#[derive(Clone, Copy, Debug)]
pub struct ClosedForms<'a>(pub PlanRequest<'a>);

impl CostModel for ClosedForms<'_> {
    type Error = PlanError;

    fn price(&self, changes: &[RequestChange], cards: &[Card]) -> Result<PlanPrice, PlanError> {
        let params = changed(self.0.params, changes);
        let request = PlanRequest { params: &params, cards, ..self.0 };
        // Everything is planned anew: a change of flags may change the layout.
        let cost = PlanCalculator::new(&request)?.at(u64::from(params.context))?;
        Ok(cost.into())
    }
}

impl From<RequestCost> for PlanPrice {
    fn from(cost: RequestCost) -> Self {
        Self { cards: cost.cards, host: cost.host }
    }
}
