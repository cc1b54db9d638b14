//! Loads a model, from the request to the start of its engine.
//!
//! The steps are the survey (check of the model's files and memory need), the search for memory (in
//! [`super::eviction`]), and the start.

use std::sync::Arc;

use plimsoll_base::{Card, ModelNeed, Placement, Reason, RunId};

use super::Scheduler;
use super::planning::NOT_PLANNED;
use crate::effect::{RequestRefusal, SchedulerEffect};
use crate::models::{PlanProgress, RequestedState, RoomSearch, RunState, StartFigure};
use crate::place::{NoPlacement, PlacementVerdict, Reservations};
use crate::refusal;
use crate::time::ModelId;

impl Scheduler {
    /// Begins to look for a place if the model is wanted and nothing is under way.
    pub(super) fn seek(&mut self, id: ModelId) {
        let now = self.now;
        let ready = self.models.get(id).is_some_and(|slot| {
            slot.run.is_none()
                && matches!(slot.seeking(), RequestedState::Nothing)
                && slot.wanted()
                && slot.record.deferred(now).is_none()
        });
        if ready && self.closing.is_none() {
            self.set_seeking(id, RequestedState::Survey { stale: false });
            self.emit(SchedulerEffect::Survey { model: id });
        }
    }

    pub(super) fn set_seeking(&mut self, id: ModelId, seeking: RequestedState) {
        let enters = matches!(seeking, RequestedState::Room(_));
        let Some(before) = self.models.set_seeking(id, seeking) else { return };
        if matches!(before, RequestedState::Survey { .. }) {
            self.turns_changed();
        }
        if enters || matches!(before, RequestedState::Room(_)) {
            self.placements.mark_dirty();
        }
    }

    /// Marks that the order of waiting models may have changed.
    pub(super) fn turns_changed(&mut self) {
        if self.settings.largest_first {
            self.mark_dirty();
        }
    }

    pub(super) fn surveyed(&mut self, id: ModelId, result: Result<ModelNeed, Reason>) {
        let Some(slot) = self.models.get(id) else { return };
        let stale = match slot.seeking() {
            RequestedState::Survey { stale } => *stale,
            RequestedState::Room(_) => return self.resurveyed(id, result),
            RequestedState::Nothing => return,
        };
        self.set_seeking(id, RequestedState::Nothing);
        match result {
            // The configuration changed meanwhile; the answer is about another engine.
            _ if stale => self.seek(id),
            Ok(need) => self.await_room(id, need, Vec::new()),
            Err(reason) => {
                if let Some(slot) = self.models.get_mut(id) {
                    slot.record.found_fault(reason);
                    let refusal = refusal::load_failed(&slot.name, &slot.record, None);
                    self.refuse_queue(id, &refusal);
                }
            }
        }
    }

    /// Replaces the need of a model that waits for room. Its place in the order and its victims stay.
    fn resurveyed(&mut self, id: ModelId, result: Result<ModelNeed, Reason>) {
        let search = self.runs.next_search();
        if let (Some(room), Ok(need)) = (self.room_mut(id), result) {
            // Answers that are on their way are about the need before.
            (room.id, room.need, room.plan) = (search, need, PlanProgress::default());
            self.placements.mark_dirty();
        }
    }

    /// Waits for room for a model that is known to load, and for the memory of the runs in `after`.
    pub(super) fn await_room(&mut self, id: ModelId, need: ModelNeed, after: Vec<RunId>) {
        let slot = self.models.get(id).filter(|slot| slot.wanted());
        if slot.is_none() || self.closing.is_some() {
            return;
        }
        let (search, since) = (self.runs.next_search(), self.now);
        let room = RoomSearch { id: search, need, since, after, ..RoomSearch::default() };
        self.set_seeking(id, RequestedState::Room(Box::new(room)));
    }

    pub(super) fn start(&mut self, id: ModelId, placement: Placement) {
        let Some(slot) = self.models.get(id) else { return };
        let Some(room) = slot.room() else { return };
        let (need, name) = (room.need.clone(), Arc::clone(&slot.name));
        let (timeout, port) = (slot.spec.load_timeout, slot.spec.port);
        let (measures_free, displaced) = (slot.spec.measures_free, room.displaced);
        let growth = Self::growth(slot, &need);
        let cards = if growth == NOT_PLANNED { self.cards_of(&placement) } else { Vec::new() };
        // Kept for the conclusions after the load: they compare the card with this moment.
        let start = self.start_figures(&placement);
        let next = self.runs.next_id();
        // The ledger has the last word: a placement that was decided on other figures is dropped and decided
        // again.
        if self.placements.ledger.claim(next, &name, &placement).is_err() {
            return;
        }
        let (run_id, now) = (self.runs.begin(id), self.now);
        let mut run = RunState::new(run_id, need, placement.clone());
        run.phase = RunState::loading(now, timeout);
        (run.depth_unwatched, run.awaits_growth) = (Some(growth.to_owned()), growth == NOT_PLANNED);
        (run.stamp, run.started, run.start) = (self.runs.next_stamp(), now, start);
        (run.displaced, run.port, run.measures_free) = (displaced, port, measures_free);
        self.set_seeking(id, RequestedState::Nothing);
        if let Some(slot) = self.models.get_mut(id) {
            (slot.preload, slot.comes_back) = (false, false);
            slot.last_claim = placement.shares.iter().map(|share| share.bytes).max().unwrap_or_default();
        }
        let awaits_growth = run.awaits_growth;
        self.models.begin_run(id, run);
        self.arm(now + timeout);
        self.emit(SchedulerEffect::Start { run: run_id, model: id, placement });
        if awaits_growth {
            self.emit(SchedulerEffect::PlanGrowth { run: run_id, model: id, cards });
        }
    }

    /// The placement's cards, each with what is free now: an engine splits its layers by free memory.
    fn cards_of(&self, placement: &Placement) -> Vec<Card> {
        let accounts = placement.cards().filter_map(|card| self.ledger().account(card));
        accounts.map(|account| Card { free: account.free(), ..account.card().clone() }).collect()
    }

    fn start_figures(&self, placement: &Placement) -> Vec<StartFigure> {
        let accounts = placement.cards().filter_map(|card| self.ledger().account(card));
        let figures = accounts.map(|account| StartFigure {
            card: account.card().id.clone(),
            claim: placement.on(&account.card().id),
            free: account.card().free,
            foreign: account.foreign(),
        });
        figures.collect()
    }

    /// Gives a preload up: it takes only free memory and stops no other model.
    pub(super) fn skip_preload(&mut self, id: ModelId) {
        self.set_seeking(id, RequestedState::Nothing);
        if let Some(slot) = self.models.get_mut(id) {
            slot.preload = false;
            // One that came back waits for memory without a word, as before.
            if slot.is_back() {
                slot.comes_back = true;
                return;
            }
            let text = format!("{} was not preloaded: it does not fit beside the loaded models", slot.name);
            let reason = Reason::new("not_preloaded", text);
            slot.record.lacked_room(reason.clone());
            self.emit(SchedulerEffect::GiveUpLoad { model: id, reason: Box::new(reason) });
        }
    }

    // DECISION: a need that was measured stays, so that the same request gets the same answer each time. A
    // need that was inferred from a failure is a guess: it refuses once, as that failure, and is then
    // dropped.
    /// Refuses a model that fits nowhere. If only a guess of its need keeps it out, it may be tried again
    /// later, like any other that failed to load.
    pub(super) fn refuse_for_good(&mut self, id: ModelId, never: NoPlacement) {
        let now = self.now;
        let guessed = self.models.get_mut(id).is_some_and(|slot| slot.record.forget_shortfall());
        if guessed && self.fits_nowhere(id) {
            // Decided again in this event, on what is known.
            return self.placements.mark_dirty();
        }
        let Some(slot) = self.models.get_mut(id) else { return };
        if !guessed {
            if never.crowded_out {
                slot.record.lacked_room(never.reason.clone())
            } else {
                slot.record.note(never.reason.clone())
            }
            // The refusals of waiting requests tell it as well.
            let alone = never.crowded_out && slot.line.is_empty();
            let reason = alone.then(|| Box::new(never.reason.clone()));
            self.give_up(id, refusal::no_placement(id, never));
            if let Some(reason) = reason {
                self.emit(SchedulerEffect::GiveUpLoad { model: id, reason });
            }
            return;
        }
        // The failure that taught the larger need explains the refusal better than its size.
        let cause = slot.record.last_failure.take();
        slot.record.load_failed(now, never.reason.because_all(cause), false);
        let wait = slot.record.deferred(now);
        let refusal = refusal::load_failed(&slot.name, &slot.record, wait);
        self.give_up(id, refusal);
    }

    fn fits_nowhere(&self, id: ModelId) -> bool {
        let state = self.state();
        let verdict = state.verdict(id, &state.contention(), &Reservations::default());
        verdict.is_some_and(|found| matches!(found.verdict, PlacementVerdict::Never(_)))
    }

    /// True if the model may not stop one of these runs, because its last load failed.
    pub(super) fn spares(&self, id: ModelId, victims: &[RunId]) -> bool {
        let failed = self.models.get(id).is_some_and(|slot| slot.record.spares(self.now).is_some());
        let stays = |run: &RunId| self.state().live(*run).is_some_and(|(.., run)| !run.leaves());
        failed && victims.iter().any(stays)
    }

    /// Refuses the requests of a model that leaves others alone after its failure.
    pub(super) fn refuse_sparing(&mut self, id: ModelId) {
        let now = self.now;
        let Some(slot) = self.models.get(id) else { return };
        let refusal = refusal::sparing(&slot.name, &slot.record, slot.record.spares(now).unwrap_or_default());
        self.give_up(id, refusal);
    }

    pub(super) fn give_up(&mut self, id: ModelId, refusal: RequestRefusal) {
        self.set_seeking(id, RequestedState::Nothing);
        self.refuse_queue(id, &refusal);
    }
}
