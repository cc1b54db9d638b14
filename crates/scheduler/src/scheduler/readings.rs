//! Adjusts the memory counted for each engine to what the driver reports: the memory that engines use, and
//! the free memory of cards.

use std::sync::Arc;

use plimsoll_base::{Bytes, CardId, RunId};

use super::Scheduler;
use crate::load_check::LoadCheck;
use crate::models::{RunSleep, RunState};
use crate::place::Ledger;
use crate::time::{ModelId, Moment};

impl Scheduler {
    pub(super) fn measured(&mut self, run_id: RunId, used: &[(CardId, Bytes)]) {
        let Some((id, slot)) = self.state().model_of(run_id) else { return };
        let name = Arc::clone(&slot.name);
        let ready = slot.run.as_ref().is_some_and(RunState::is_ready);
        // The memory that it released for its sleep is needed again with its next request.
        let awake = slot.run.as_ref().is_some_and(|run| run.sleep == RunSleep::Awake);
        let ledger = &mut self.placements.ledger;
        ledger.measure(run_id, &name, used);
        // While it loads, its measured memory still grows, and the rest of the card must stay free for it.
        if ready && awake {
            ledger.settle(run_id);
        }
        if awake {
            self.learn_from(id, used);
        }
        self.mark_dirty();
    }

    fn learn_from(&mut self, id: ModelId, used: &[(CardId, Bytes)]) {
        let Some(slot) = self.models.get_mut(id) else { return };
        let Some(run) = &mut slot.run else { return };
        // A measurement at a known depth corrects the curve for every depth.
        if let Some(occupancy) = &mut run.occupancy {
            occupancy.measured(used);
        }
        // A measurement is added on each card, and the host beside cards grows by caches of its own.
        let ledger = &self.placements.ledger;
        let is_own = |card: &CardId| !ledger.is_alongside(card, &run.placement);
        let on_cards = || used.iter().filter(|(card, _)| is_own(card));
        let total: Bytes = on_cards().map(|(_, bytes)| *bytes).sum();
        if run.need.is_alone() {
            // While it loads, a run of unknown need is measured too early; only a ready one shows its need.
            if !total.is_zero() && run.is_ready() {
                let claims = ledger.claim_shares(run.id).into_iter();
                let claim = claims.filter(|share| is_own(&share.card)).map(|share| share.bytes).sum();
                slot.record.measured = slot.record.measured.max(Some(claim));
            }
            return;
        }
        slot.record.measured_excess(excess(run, on_cards()));
        // The claim has grown by as much; counting from there keeps the same excess from being learned twice.
        for (card, bytes) in used {
            run.grow_placement(card, *bytes);
        }
    }

    pub(super) fn cards_read(&mut self, free: &[(CardId, Bytes)], taken: Moment) {
        self.placements.read(free, taken);
        let ledger = &self.placements.ledger;
        let running = self.models.iter_mut().filter_map(|slot| slot.run.as_mut());
        // A reading from before the end of the load shows only part of it.
        for run in running.filter(|run| run.ready_at.is_some_and(|ready| ready <= taken)) {
            if run.load_check.is_empty() {
                run.load_check = Self::check_load(ledger, run);
            }
        }
        self.mark_dirty();
    }

    /// Compares free memory with the ledger for a run that has loaded.
    fn check_load(ledger: &Ledger, run: &RunState) -> Vec<LoadCheck> {
        let checks = run.start.iter().filter_map(|start| {
            let account = ledger.account(&start.card)?;
            let taken = start.free.saturating_sub(account.card().free);
            // The claim of the start, because measured memory beyond it has raised it since.
            let measured = account.claims().iter().find(|claim| claim.run == run.id);
            let measured = measured.and_then(|claim| claim.measured);
            Some(LoadCheck::new(start.card.clone(), start.claim, taken, measured))
        });
        checks.collect()
    }
}

/// Measured memory of the run minus its placement, on the card with the largest difference.
fn excess<'a>(run: &RunState, used: impl Iterator<Item = &'a (CardId, Bytes)>) -> Bytes {
    let over = used.map(|(card, bytes)| match run.placement.on(card) {
        // A context on a card that the run was not given is no error of its plan.
        planned if planned.is_zero() => Bytes::ZERO,
        planned => bytes.saturating_sub(planned),
    });
    over.max().unwrap_or_default()
}
