//! Finds the models of a configuration that fit in memory at the same time, for `serve --check`.

use std::num::NonZeroUsize;

use plimsoll_base::{Card, CardId};
use plimsoll_config::ConfiguredModel;
use plimsoll_scheduler::CardLimit;
use plimsoll_scheduler::place::{CandidateModel, CandidateVerdict, Ledger, together};

use super::Forecast;

/// The largest group of models that can be loaded at the same time, and who leaves for each of the others.
#[derive(Clone, Debug, Default)]
pub struct TogetherForecast {
    /// In the order of the models; `None` for one whose need is unknown.
    pub models: Vec<Option<CandidateVerdict>>,
    /// False if a larger group may exist.
    pub is_largest: bool,
}

/// Finds that group on the cards as they would be without the models.
pub fn loaded_together(
    entries: &[ConfiguredModel],
    forecasts: &[Forecast],
    limits: &[CardLimit],
    models_max: Option<NonZeroUsize>,
) -> TogetherForecast {
    let ledger = Ledger::new(limits.to_vec()).with_most_runs(models_max);
    let allowed = |entry: &ConfiguredModel| -> Vec<CardId> {
        let may_use = |card: &&Card| entry.cards.iter().any(|name| card.answers_to(name));
        limits.iter().map(|limit| &limit.card).filter(may_use).map(|card| card.id.clone()).collect()
    };
    // A model whose engine is missing is placed too: its need is known.
    let candidates: Vec<CandidateModel<'_>> = entries
        .iter()
        .zip(forecasts)
        .filter_map(|(entry, forecast)| {
            Some(CandidateModel {
                name: &entry.name,
                demand: forecast.demand.as_deref()?,
                allowed: allowed(entry),
                company: &entry.company,
                port: entry.fixed_port(),
                pinned: entry.pinned,
            })
        })
        .collect();
    let found = together(&candidates, &ledger);
    let mut verdicts = found.models.into_iter();
    let models = forecasts.iter().map(|forecast| forecast.demand.as_ref().and_then(|_| verdicts.next()));
    TogetherForecast { models: models.collect(), is_largest: found.is_largest }
}
