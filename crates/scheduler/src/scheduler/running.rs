//! Handles the life of one engine process: loading, ready, draining, stopping, ended, memory freed by the
//! driver.

use std::time::Duration;

use plimsoll_base::{CardId, End, Reason, RunId};

use super::Scheduler;
use super::out_of_memory::MemoryCause;
use crate::effect::{SchedulerEffect, Stopping};
use crate::models::{Drain, ModelSlot, PartingCause, RequestedState, RunPhase, RunState};
use crate::refusal;
use crate::time::ModelId;

/// Time between a stop and a kill, or between two kills, whatever is configured.
const SHORTEST_STOP: Duration = Duration::from_millis(100);

impl Scheduler {
    /// The model of a run that has a process.
    pub(super) fn living_mut(&mut self, run: RunId) -> Option<(ModelId, &mut ModelSlot)> {
        let id = self.runs.model_of(run)?;
        Some((id, self.models.get_mut(id)?))
    }

    /// A run that has a process, with its model.
    pub(super) fn run_mut(&mut self, run: RunId) -> Option<(ModelId, &mut RunState)> {
        let (id, slot) = self.living_mut(run)?;
        Some((id, slot.run_mut(run)?))
    }

    pub(super) fn progressed(&mut self, run_id: RunId, measured: bool) {
        let now = self.now;
        if let Some((_, slot)) = self.living_mut(run_id) {
            let timeout = slot.spec.load_timeout;
            if let Some(run) = &mut slot.run {
                run.progress(now, timeout, measured);
            }
        }
    }

    pub(super) fn ready(&mut self, run_id: RunId) {
        let now = self.now;
        let Some((id, slot)) = self.living_mut(run_id) else { return };
        // A run that was stopped during its load may still report that it is ready.
        let Some(run) = slot.run.as_mut().filter(|run| run.is_loading()) else { return self.woke(run_id) };
        run.phase = RunPhase::Ready { idle_since: now };
        run.ready_at = Some(now);
        run.shows_work(now);
        let measured = run.measures_free;
        let load_time = now.since(run.started);
        // The order is fulfilled; from now on only requests keep the model.
        slot.load_wanted = None;
        slot.record.loaded();
        self.models.set_load_time(id, load_time);
        self.models.mark_states_dirty();
        self.models.last_ready = now;
        // A run of unknown need held the whole card while it loaded; now its measured memory is enough.
        self.placements.ledger.settle(run_id);
        if measured {
            self.stop_drained();
        }
        self.measure_queue(id);
        self.dispatch_queue(id);
        self.rested(id);
        self.mark_dirty();
        self.bring_back();
    }

    /// Lets a run go: at once if nothing is in flight, else when that is done.
    pub(super) fn drain(&mut self, id: ModelId, cause: Drain) {
        let now = self.now;
        let Some(slot) = self.models.get_mut(id) else { return };
        let Some(run) = slot.run.as_mut() else { return };
        if cause == Drain::Evict && run.draining.is_none() && !run.is_loading() {
            slot.turn_ended = now;
        }
        // A run that leaves for good is not called off when the model that it makes room for is gone.
        if run.draining != Some(Drain::Leave) && !run.is_stopping() {
            run.draining = Some(cause);
        }
        let probe = run.probe_due();
        // A load has no request in flight; stopping it loses only time.
        let idle = run.in_flight() == 0 && !run.is_stopping();
        self.models.mark_states_dirty();
        if let Some(due) = probe {
            self.arm(due.max(self.now));
        }
        if idle {
            self.stop(id);
        }
    }

    /// Lets a run go for good.
    pub(super) fn part(&mut self, id: ModelId, cause: PartingCause) {
        if let Some(run) = self.models.get_mut(id).and_then(|slot| slot.run.as_mut()) {
            run.part(cause);
            self.drain(id, Drain::Leave);
        }
    }

    /// Stops the run, once no start on its cards measures their free memory.
    pub(super) fn stop(&mut self, id: ModelId) {
        let run = self.models.get(id).and_then(|slot| slot.run.as_ref());
        if self.closing.is_none() && run.is_some_and(|run| self.state().is_measured(&run.placement, run.id)) {
            return;
        }
        self.end_process(id, Stopping::Graceful, None);
    }

    /// Stops the runs whose stop waited for the end of a start that measured free memory.
    fn stop_drained(&mut self) {
        let waits = |run: &RunState| run.is_ready() && run.draining.is_some() && run.in_flight() == 0;
        let waiting = self.models.running().filter(|(_, _, run)| waits(run)).map(|(id, ..)| id);
        for id in waiting.collect::<Vec<_>>() {
            self.stop(id);
        }
        // A time to live may have passed meanwhile.
        self.arm_timers();
    }

    /// Kills the run because of its own failure.
    pub(super) fn kill_for(&mut self, id: ModelId, reason: Reason) {
        self.end_process(id, Stopping::Kill, Some(reason));
    }

    pub(super) fn end_process(&mut self, id: ModelId, how: Stopping, reason: Option<Reason>) {
        let (now, closing) = (self.now, self.closing);
        let Some(slot) = self.models.get_mut(id) else { return };
        let until = now + slot.spec.stop_timeout.max(SHORTEST_STOP);
        // A shutdown has an end, whatever a model's own time is.
        let until = closing.map_or(until, |closing| until.min(closing.end.max(now + SHORTEST_STOP)));
        let Some(run) = &mut slot.run else { return };
        let measured = run.measures_now();
        run.phase = RunPhase::Stopping { until };
        // The first reason stands: a second kill follows from the first.
        run.killed_for = run.killed_for.take().or(reason);
        let run = run.id;
        self.models.mark_states_dirty();
        self.emit(SchedulerEffect::Stop { run, how });
        self.arm(until);
        self.mark_dirty();
        if measured {
            self.stop_drained();
        }
    }

    pub(super) fn ended(&mut self, run_id: RunId, end: End) {
        let Some(id) = self.runs.living.remove(&run_id) else { return };
        self.models.mark_states_dirty();
        // The process that asked is gone, and its request with it.
        self.budgets.retain(|request| request.run != run_id);
        self.set_depth_wait(id, None);
        let Some(mut run) = self.models.end_run(id) else { return };
        // Its last measurement is dropped with the claim below.
        let mut measured = self.ledger().measured_shares(run_id);
        measured.retain(|share| !self.ledger().is_alongside(&share.card, &run.placement));
        self.give_memory_back(run_id);
        let unanswered = run.take_unanswered();
        self.account_cost(id, &run);
        if run.is_ready() && run.killed_for.is_none() {
            self.blame(id, run_id);
        }
        if let Some(slot) = self.models.get_mut(id).filter(|_| run.draining == Some(Drain::Evict)) {
            slot.comes_back = slot.spec.preload;
        }
        match (run.phase, &run.killed_for) {
            (_, Some(reason)) => {
                let reason = reason.clone();
                // If it had served, the next load need not wait the first time.
                if run.ready_at.is_some() {
                    self.failed_serving(id, &run, reason)
                } else {
                    self.load_failed(id, reason, false)
                }
            }
            (RunPhase::Stopping { .. }, None) => {
                if let Some(slot) = self.models.get_mut(id) {
                    let lived = run.ready_at.map_or(Duration::ZERO, |at| self.now.since(at));
                    slot.record.run_ended(lived, &run.placement, &measured);
                }
                self.seek(id);
            }
            (RunPhase::Loading { .. }, None) => self.ended_loading(id, &run, end),
            (RunPhase::Ready { .. }, None) => {
                let (reason, _) = self.learn_from_end(id, &run, end);
                self.failed_serving(id, &run, reason);
            }
        }
        for request in unanswered {
            self.release_occupied(request);
        }
        if run.measures_free {
            self.stop_drained();
        }
        self.mark_dirty();
        self.close();
    }

    /// Adds the loads that the end of a run will cost to the search for which it left, or notes what a failed
    /// load cost.
    fn account_cost(&mut self, id: ModelId, run: &RunState) {
        let now = self.now;
        let load_time = self.models.get(id).map_or(Duration::ZERO, |slot| slot.load_time.unwrap_or_default());
        if run.draining == Some(Drain::Evict) && run.ready_at.is_some() {
            self.models.displaced(run.id, load_time);
        }
        let failed = run.is_loading() || run.killed_for.is_some() && run.ready_at.is_none();
        if let Some(slot) = self.models.get_mut(id).filter(|_| failed) {
            slot.record.load_cost(now, now.since(run.started) + run.displaced);
        }
    }

    /// The reason of an end, and whether other processes took memory that the run lacked. Takes what it
    /// lacked by itself.
    fn learn_from_end(&mut self, id: ModelId, run: &RunState, end: End) -> (Reason, bool) {
        let End::OutOfMemory { shortfall, .. } = &end else { return (cause(end), false) };
        match self.memory_cause(run, shortfall.as_ref()) {
            MemoryCause::Need(missing) => {
                if let Some(slot) = self.models.get_mut(id) {
                    slot.record.ran_out(&run.placement, missing);
                }
                (cause(end), false)
            }
            MemoryCause::Foreign(foreign) => (foreign.because(cause(end)), true),
            MemoryCause::Unknown(unknown) => (cause(end).because(unknown), false),
        }
    }

    fn failed_serving(&mut self, id: ModelId, run: &RunState, reason: Reason) {
        let now = self.now;
        if let Some(slot) = self.models.get_mut(id) {
            slot.record.run_failed(now, run.ready_at.unwrap_or(now), run.answered > 0, reason);
        }
        self.after_crash(id);
    }

    fn ended_loading(&mut self, id: ModelId, run: &RunState, end: End) {
        let (ran_out, lasts) =
            (matches!(end, End::OutOfMemory { .. }), matches!(end, End::Unstartable { lasts: true, .. }));
        let (reason, is_foreign) = self.learn_from_end(id, run, end);
        let Some(slot) = self.models.get_mut(id) else { return };
        // A run that had a whole card cannot get more memory by a second try.
        if ran_out && !run.need.is_alone() && !std::mem::replace(&mut slot.record.retried, true) {
            slot.record.note(reason);
            // The need was right and the card was not free: no idle run is at fault.
            return if is_foreign {
                self.await_room(id, run.need.clone(), vec![run.id])
            } else {
                self.retry_after_eviction(id, run)
            };
        }
        if !ran_out || is_foreign {
            return self.load_failed(id, reason, lasts);
        }
        let text =
            format!("{} ran out of memory while loading, and no idle model is left to stop", slot.name);
        let reason = Reason::new("out_of_memory", text).fact("claim", run.placement.total()).because(reason);
        self.load_failed(id, reason, false);
    }

    /// Stops idle runs on the cards of a load that ran out of memory although it fitted by the ledger. The
    /// load is tried once more when their memory is free, with a larger need if guard recorded one.
    fn retry_after_eviction(&mut self, id: ModelId, run: &RunState) {
        let mut after = vec![run.id];
        // It was a card that had too little: other models need not leave the host's memory.
        let alongside = |card: &&CardId| !self.ledger().is_alongside(card, &run.placement);
        let cards: Vec<CardId> = run.placement.cards().filter(alongside).cloned().collect();
        for (other, run) in self.state().idle_on(&cards) {
            after.push(run);
            self.drain(other, Drain::Evict);
        }
        self.await_room(id, run.need.clone(), after);
    }

    /// Refuses all waiting requests with the cause, and holds the next load back, so that it does not fail in
    /// the same way at once.
    fn load_failed(&mut self, id: ModelId, reason: Reason, lasts: bool) {
        let now = self.now;
        if let Some(slot) = self.models.get_mut(id) {
            slot.record.load_failed(now, reason, lasts);
        }
        self.after_crash(id);
    }

    fn after_crash(&mut self, id: ModelId) {
        let now = self.now;
        let Some(slot) = self.models.get(id) else { return };
        match (slot.record.refuses(now), slot.record.deferred(now)) {
            (Some(wait), _) => {
                let refusal = refusal::load_failed(&slot.name, &slot.record, Some(wait));
                self.refuse_queue(id, &refusal);
            }
            (None, Some(wait)) => self.arm(now + wait),
            (None, None) => self.seek(id),
        }
    }

    fn give_memory_back(&mut self, run: RunId) {
        let ledger = &mut self.placements.ledger;
        let taken = ledger.occupied_shares(run);
        ledger.leave(run);
        // At shutdown no load will ever need the memory, so the daemon does not wait for it.
        if taken.is_empty() || self.closing.is_some() {
            ledger.release(run);
            self.resume_budgets(run);
        } else {
            self.runs.leaving.insert(run);
            self.emit(SchedulerEffect::AwaitMemory { run, taken });
        }
    }

    pub(super) fn memory_returned(&mut self, run: RunId) {
        if self.runs.leaving.remove(&run) {
            self.placements.ledger.release(run);
            self.placements.outdate();
            self.resume_budgets(run);
            self.mark_dirty();
            self.bring_back();
        }
    }

    /// Cancels a model's search for a run; the result of a survey in progress will be ignored.
    pub(super) fn cancel_search(&mut self, id: ModelId) {
        let Some(slot) = self.models.get_mut(id) else { return };
        if !slot.void_survey() && slot.room().is_some() {
            self.set_seeking(id, RequestedState::Nothing);
        }
    }
}

fn cause(end: End) -> Reason {
    match end {
        End::Expected => Reason::new("ended", "the engine exited successfully before it was asked to stop"),
        End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason, .. } => reason,
    }
}
