//! Builds guard's options for one engine: its budget on each card, and what it may put into host memory.

use plimsoll_base::{Bytes, Card, RequestedMemory};
use plimsoll_config::{GuardMode, GuardSettings, GuardedCard};
use plimsoll_planner::guard_budget;
use plimsoll_wire::options::GuardOptions;

use plimsoll_runtime::EngineRun;

/// True for a run whose cache overflows by the model's key `spill`.
pub(super) fn spills(run: &EngineRun) -> bool {
    !run.overflow().is_empty()
}

/// The model's own settings, or the usual ones; those of `spill` where its cache overflows.
pub(super) fn settings_of(run: &EngineRun, usual: &GuardSettings) -> GuardSettings {
    let settings = run.entry.guard.or(usual);
    if !spills(run) {
        return settings;
    }
    let (mode, spill) = (Some(GuardMode::Budget), run.entry.spill);
    GuardSettings { mode, spill, budget: None, need: None, keep: None, on_oom: None, ..settings }
}

/// Guard's limits for a run on a card with this claim.
pub(super) fn budget_on(
    settings: &GuardSettings,
    run: &EngineRun,
    card: &Card,
    claim: Bytes,
) -> Option<Bytes> {
    let budget = settings.budget_for(Some(claim))?;
    // An engine that spills takes all of its budget, so what the driver takes besides has to be left out of
    // it.
    Some(if spills(run) { guard_budget(card, budget) } else { budget })
}

/// Options of guard for these cards. A card that is only described has no identity by which an option could
/// name it; then one budget holds for every card.
pub(super) fn of_run(
    settings: &GuardSettings,
    run: &EngineRun,
    cards: &[&Card],
    needs: &[RequestedMemory],
) -> GuardOptions {
    let budget = |card: &Card| budget_on(settings, run, card, run.placement().on(&card.id));
    let need = |card: &Card| needs.iter().find(|need| need.card == card.id);
    let named = cards.iter().filter_map(|card| {
        Some(GuardedCard {
            uuid: card.identity()?,
            budget: budget(card),
            need: need(card).map(|need| need.bytes),
            caches: need(card).map_or_else(Vec::new, |need| need.caches.clone()),
            // Depths are reported to engines that spill by the key of their model alone.
            weights: need(card).and_then(|need| need.weights).filter(|_| spills(run)),
        })
    });
    let named: Vec<GuardedCard> = named.collect();
    let mut options = settings.options(&named);
    options.hide_others = run.is_isolated_by_layer();
    if named.len() < cards.len() {
        // The largest share, because one budget holds for every card here.
        options.budget = cards.iter().filter_map(|card| budget(card)).max().map(Bytes::get);
        options.need = match cards {
            [card] => need(card).map(|need| need.bytes.get()),
            _ => None,
        };
    }
    options
}
