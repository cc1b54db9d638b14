//! Finds the models of a configuration that fit in memory at the same time, and pinned or preloaded ones that
//! do not, for `serve --check`.

use std::cmp::Reverse;
use std::num::NonZeroUsize;

use plimsoll_base::Order;
use plimsoll_config::ConfiguredModel;
use plimsoll_scheduler::CardLimit;
use plimsoll_scheduler::place::{Ledger, PlacementVerdict};

use super::Forecast;
use super::together::{CandidateModel, CandidateVerdict, PlacedModels, together};
use crate::operator_log::in_a_line;

/// The largest group of models that can be loaded at the same time, and who leaves for each of the others.
#[derive(Clone, Debug, Default)]
pub struct TogetherForecast {
    /// In the order of the models; `None` for one whose need is unknown.
    pub models: Vec<Option<CandidateVerdict>>,
    /// No group has more models.
    pub most: usize,
}

/// Models that cannot be loaded together, though the configuration wants that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandingConflicts {
    /// Of models that are pinned: one of them is refused for ever.
    pub pins: Vec<String>,
    /// Of models that are loaded at the start: one of them is not.
    pub preloads: Vec<String>,
}

/// Finds the largest group on the cards as they would be without the models.
pub fn loaded_together(
    entries: &[ConfiguredModel],
    forecasts: &[Forecast],
    limits: &[CardLimit],
    models_max: Option<NonZeroUsize>,
) -> TogetherForecast {
    let ledger = Ledger::new(limits.to_vec()).with_most_runs(models_max);
    // A model whose engine is missing is placed too: its need is known.
    let candidates = entries.iter().zip(forecasts);
    let candidates: Vec<CandidateModel<'_>> =
        candidates.filter_map(|(entry, forecast)| candidate(entry, forecast, limits)).collect();
    let found = together(&candidates, &ledger);
    let mut verdicts = found.models.into_iter();
    let models = forecasts.iter().map(|forecast| forecast.demand.as_ref().and_then(|_| verdicts.next()));
    TogetherForecast { models: models.collect(), most: found.most }
}

/// Places the pinned models, and then those that are preloaded, on the cards as if nothing else ran.
pub fn conflicts(
    entries: &[ConfiguredModel],
    forecasts: &[Forecast],
    limits: &[CardLimit],
    models_max: Option<NonZeroUsize>,
) -> StandingConflicts {
    let ledger = Ledger::new(limits.to_vec()).with_most_runs(models_max);
    let may_load = entries.iter().zip(forecasts).filter(|(_, forecast)| forecast.refused.is_none());
    let found: Vec<(&ConfiguredModel, CandidateModel<'_>)> =
        may_load.filter_map(|(entry, forecast)| Some((entry, candidate(entry, forecast, limits)?))).collect();
    // None of them leaves for another.
    let models = found.iter().map(|(_, model)| CandidateModel { pinned: true, ..model.clone() });
    let models: Vec<CandidateModel<'_>> = models.collect();
    let (mut pinned, others): (Vec<usize>, Vec<usize>) =
        (0..found.len()).partition(|index| found[*index].0.pinned);
    let mut placed = PlacedModels::new(&models, ledger);
    // DECISION: the largest first, which finds room for all nearly always where there is any.
    pinned.order_by_key(|index| Reverse(placed.size(*index)));
    let mut add = |index: usize, what: &str| conflict(&mut placed, &models, index, what);
    let pins = pinned.into_iter().filter_map(|index| add(index, "is pinned, and cannot be loaded")).collect();
    let preloaded = others.into_iter().filter(|index| found[*index].0.preload);
    let preloads = preloaded.filter_map(|index| add(index, "is not loaded at the start")).collect();
    StandingConflicts { pins, preloads }
}

/// The model as one that may be placed; `None` if its need is unknown.
fn candidate<'a>(
    entry: &'a ConfiguredModel,
    forecast: &'a Forecast,
    limits: &[CardLimit],
) -> Option<CandidateModel<'a>> {
    let allowed = limits.iter().map(|limit| &limit.card).filter(|card| entry.names_card(card));
    let allowed = allowed.map(|card| card.id.clone());
    Some(CandidateModel {
        name: &entry.name,
        demand: forecast.demand.as_deref()?,
        allowed: allowed.collect(),
        company: &entry.company,
        port: entry.fixed_port(),
        pinned: entry.pinned,
    })
}

/// Places a model beside the others; returns why that fails.
fn conflict(
    placed: &mut PlacedModels<'_>,
    models: &[CandidateModel<'_>],
    index: usize,
    what: &str,
) -> Option<String> {
    let why = match placed.verdict(index) {
        PlacementVerdict::Fits(placement) => placed.add(index, placement).err()?.to_string(),
        PlacementVerdict::Never(never) => in_a_line(&never.reason),
        _ => "it does not fit".to_owned(),
    };
    let others: Vec<String> =
        placed.members().into_iter().map(|member| format!("`{}`", models[member].name)).collect();
    Some(format!("`{}` {what} beside {}: {why}", models[index].name, others.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_base::{Bytes, DeclaredSize, Reason};
    use plimsoll_flags::FlagOrigin;

    use super::*;

    const LIMIT: &str = "name=RTX3090,total=24GiB,free=24GiB,cc=8.6";

    fn entry(name: &str, pinned: bool, preload: bool) -> ConfiguredModel {
        let entry = ConfiguredModel::new(name.to_owned(), FlagOrigin::CommandLine);
        ConfiguredModel { pinned, preload, ..entry }
    }

    fn forecast(gib: u64) -> Forecast {
        Forecast { demand: Some(Arc::new(DeclaredSize(Bytes::gib(gib)))), ..Forecast::named("") }
    }

    fn found(entries: &[ConfiguredModel], forecasts: &[Forecast]) -> StandingConflicts {
        let limit = CardLimit { card: LIMIT.parse().unwrap(), budget: None, reserve: Bytes::ZERO };
        conflicts(entries, forecasts, &[limit], None)
    }

    #[test]
    fn pinned_models_are_placed_the_largest_first_and_preloads_after_them() {
        let entries = [entry("a", true, false), entry("b", true, false), entry("c", false, true)];
        let fits = found(&entries, &[forecast(8), forecast(10), forecast(6)]);
        assert_eq!(fits, StandingConflicts::default());
        let StandingConflicts { pins, preloads } = found(&entries, &[forecast(8), forecast(18), forecast(7)]);
        assert!(pins[0].starts_with("`a` is pinned, and cannot be loaded beside `b`: "), "{pins:?}");
        assert!(preloads[0].starts_with("`c` is not loaded at the start beside `b`: "), "{preloads:?}");
        assert_eq!((pins.len(), preloads.len()), (1, 1));
    }

    #[test]
    fn a_model_that_is_refused_or_of_unknown_need_is_in_nobodys_way() {
        let entries = [entry("a", true, false), entry("b", true, false)];
        let refused = Forecast { refused: Some(Reason::new("missing", "no file")), ..forecast(20) };
        assert_eq!(found(&entries, &[refused, forecast(20)]), StandingConflicts::default());
        let unknown = Forecast { demand: None, ..forecast(20) };
        assert_eq!(found(&entries, &[unknown, forecast(20)]), StandingConflicts::default());
    }
}
