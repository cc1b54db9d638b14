//! Checks whether all models that are pinned or loaded from the start fit beside each other.

use std::num::NonZeroUsize;
use std::sync::Arc;

use plimsoll_base::{Bytes, Card, CardId, MemoryModel, ModelNeed, Order, RunId, RunningModel};
use plimsoll_config::ConfiguredModel;
use plimsoll_scheduler::CardLimit;
use plimsoll_scheduler::place::{
    CardStanding, CardTenant, LearnedNeed, Ledger, NeedAnswers, PlacementQuery, PlacementVerdict, need,
    place_planned, with_answers,
};

use super::Forecast;
use crate::operator_log::in_a_line;

/// Models that cannot be loaded together, though the configuration wants that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandingConflicts {
    /// Of models that are pinned: one of them is refused for ever.
    pub pins: Vec<String>,
    /// Of models that are loaded at the start: one of them is not.
    pub preloads: Vec<String>,
}

/// A model with the need that its forecast found.
struct Standing<'a> {
    entry: &'a ConfiguredModel,
    demand: &'a Arc<dyn MemoryModel>,
    need: ModelNeed,
}

/// Places the pinned models, and then those that are preloaded, on the cards as if nothing else ran.
pub fn conflicts(
    entries: &[ConfiguredModel],
    forecasts: &[Forecast],
    limits: &[CardLimit],
    models_max: Option<NonZeroUsize>,
) -> StandingConflicts {
    let ledger = Ledger::new(limits.to_vec()).with_most_runs(models_max);
    let cards: Vec<Card> = super::served(&ledger);
    let all = entries.iter().zip(forecasts).filter(|(_, forecast)| forecast.refused.is_none());
    let all: Vec<Standing<'_>> = all
        .filter_map(|(entry, forecast)| {
            let demand = forecast.demand.as_ref()?;
            Some(Standing { entry, need: demand.need(), demand })
        })
        .collect();
    let (mut pinned, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|model| model.entry.pinned);
    let mut table = PlacedModels { ledger, placed: Vec::new(), cards };
    // DECISION: the largest first, which finds room for all nearly always where there is any.
    pinned.order_by_key(|model| std::cmp::Reverse(table.size(model)));
    let pins =
        pinned.into_iter().filter_map(|model| table.add(model, "is pinned, and cannot be loaded")).collect();
    let preloaded = others.into_iter().filter(|model| model.entry.preload);
    let preloads = preloaded.filter_map(|model| table.add(model, "is not loaded at the start")).collect();
    StandingConflicts { pins, preloads }
}

struct PlacedModels<'a> {
    ledger: Ledger,
    placed: Vec<Standing<'a>>,
    cards: Vec<Card>,
}

impl<'a> PlacedModels<'a> {
    fn size(&self, model: &Standing<'_>) -> Bytes {
        let allowed = self.allowed(model.entry);
        let ask = |answers: &NeedAnswers| need(&query(model, &allowed, answers), &self.ledger);
        with_answers(&**model.demand, &mut NeedAnswers::default(), ask)
    }

    fn allowed(&self, entry: &ConfiguredModel) -> Vec<CardId> {
        let may_use = |card: &&Card| entry.cards.iter().any(|name| card.answers_to(name));
        self.cards.iter().filter(may_use).map(|card| card.id.clone()).collect()
    }

    /// Places a model beside the others; returns why that fails.
    fn add(&mut self, model: Standing<'a>, what: &str) -> Option<String> {
        let entry = model.entry;
        let running: Vec<RunningModel<'_>> = self
            .placed
            .iter()
            .map(|other| RunningModel { name: &other.entry.name, company: &other.entry.company, cost: 1 })
            .collect();
        let leave = entry.company.leave_for(&entry.name, &running);
        let tenants: Vec<CardTenant> = (0..)
            .zip(&self.placed)
            .zip(leave)
            .map(|((run, other), apart)| CardTenant {
                run: RunId(run),
                standing: CardStanding::Stays,
                last_used: 0,
                cost: 1,
                wait: 0,
                is_pinned_by_file: true,
                port: other.entry.fixed_port(),
                apart,
            })
            .collect();
        let allowed = self.allowed(entry);
        let (none, demand) = (NeedAnswers::default(), &**model.demand);
        let verdict = place_planned(&query(&model, &allowed, &none), demand, &self.ledger, &tenants);
        let (name, run) = (&entry.name, RunId(u64::try_from(self.placed.len()).unwrap_or(u64::MAX)));
        let why = match verdict {
            PlacementVerdict::Fits(placement) => {
                match self.ledger.claim(run, &Arc::from(name.as_str()), &placement) {
                    Ok(()) => {
                        self.placed.push(model);
                        return None;
                    }
                    Err(error) => error.to_string(),
                }
            }
            PlacementVerdict::Never(never) => in_a_line(&never.reason),
            _ => "it does not fit".to_owned(),
        };
        let others: Vec<String> = self.placed.iter().map(|other| format!("`{}`", other.entry.name)).collect();
        Some(format!("`{name}` {what} beside {}: {why}", others.join(", ")))
    }
}

fn query<'a>(model: &'a Standing<'_>, allowed: &'a [CardId], answers: &'a NeedAnswers) -> PlacementQuery<'a> {
    PlacementQuery {
        name: &model.entry.name,
        need: &model.need,
        answers,
        learned: LearnedNeed::default(),
        allowed,
        port: model.entry.fixed_port(),
        apart: 0,
    }
}
