//! Gives the memory of a planned model on any set of cards, for placing it beside other models.

use plimsoll_base::{Bytes, Card, CardId, CardKind, CardShares, MemoryModel, NamedDemand, Reason};
use plimsoll_flags::Options;
use plimsoll_planner::PlanRequest;
use plimsoll_planner::fit::{ClosedForms, CostModel};

use super::{Choice, Estimate, prompt_cache};

/// A model with chosen flags, as a demand for memory by the formulas.
#[derive(Clone, Debug)]
pub struct PlannedNeed {
    estimate: Estimate,
    options: Options,
    named: NamedDemand,
    /// The host's memory beside the cards, and what the engine's cache of idle prompts takes of it.
    host: Option<(CardId, Bytes)>,
}

impl PlannedNeed {
    /// The demand of a choice that was made for these cards of a machine. `host` is its memory beside them,
    /// where that is counted.
    pub fn new(estimate: Estimate, choice: &Choice, machine: &[Card], host: Option<&Card>) -> Self {
        let mut named = NamedDemand::default();
        // Layers that are divided by hand are divided for these cards alone.
        if choice.options.get("-ts").is_some() {
            named.cards = choice.cards.iter().map(|card| machine[*card].id.clone()).collect();
            named.only = true;
        }
        let host = host.map(|host| (host.id.clone(), prompt_cache(&choice.options, host).bytes));
        Self { estimate, options: choice.options.clone(), named, host }
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
        let mut shares: CardShares =
            cards.iter().enumerate().map(|(at, card)| (card.id.clone(), priced.peak(at))).collect();
        if let Some((host, prompts)) = &self.host {
            match shares.iter_mut().find(|(card, _)| card == host) {
                Some((_, bytes)) => *bytes += *prompts,
                None => shares.push((host.clone(), priced.host.peak() + *prompts)),
            }
        }
        Ok(shares)
    }

    fn ignores_free(&self, cards: &[Card]) -> bool {
        cards.len() == 1
    }

    fn named(&self) -> &NamedDemand {
        &self.named
    }
}
