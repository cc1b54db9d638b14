//! Gives the memory of a planned model on any set of cards, for placing it beside other models.

use plimsoll_base::{Card, CardKind, CardShares, MemoryModel, NamedDemand, Reason};
use plimsoll_flags::Options;
use plimsoll_planner::PlanRequest;
use plimsoll_planner::fit::{ClosedForms, CostModel};

use super::{Choice, Estimate};

/// A model with chosen flags, as a demand for memory by the formulas.
#[derive(Clone, Debug)]
pub struct PlannedNeed {
    estimate: Estimate,
    options: Options,
    named: NamedDemand,
}

impl PlannedNeed {
    /// The demand of a choice that was made for these cards of a machine.
    pub fn new(estimate: Estimate, choice: &Choice, machine: &[Card]) -> Self {
        let mut named = NamedDemand::default();
        // Layers that are divided by hand are divided for these cards alone.
        if choice.options.get("-ts").is_some() {
            named.cards = choice.cards.iter().map(|card| machine[*card].id.clone()).collect();
            named.only = true;
        }
        Self { estimate, options: choice.options.clone(), named }
    }
}

impl MemoryModel for PlannedNeed {
    fn on(&self, cards: &[Card]) -> Result<CardShares, Reason> {
        if cards.is_empty() {
            return Err(Reason::new("no_card", "the model needs a card"));
        }
        let failed = |error: &dyn std::error::Error| Reason::new("plan_failed", error.to_string());
        // A card of kind host has all of the plan already.
        if cards.iter().any(|card| card.shares_host && card.kind != CardKind::Host) {
            let plan = self.estimate.plan(&self.options, cards).map_err(|error| failed(&error))?;
            let mut shares: CardShares = plan.cards.iter().map(|card| (card.id.clone(), card.peak)).collect();
            shares.first_mut().into_iter().for_each(|(_, bytes)| *bytes += plan.host.peak);
            return Ok(shares);
        }
        // A search asks often, and needs neither advice nor the largest context.
        let price = |it: &PlanRequest<'_>| ClosedForms(*it).price(&[], it.cards);
        let priced = self.estimate.answer(&self.options, cards, price).map_err(|error| failed(&error))?;
        Ok(cards.iter().enumerate().map(|(at, card)| (card.id.clone(), priced.peak(at))).collect())
    }

    fn ignores_free(&self, cards: &[Card]) -> bool {
        cards.len() == 1
    }

    fn named(&self) -> &NamedDemand {
        &self.named
    }
}
