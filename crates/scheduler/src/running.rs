//! The life of a run: loading, ready, draining, stopping, ended, and its memory back.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, CardId, End, Reason, RunId, Share};

use super::effect::{Effect, Stopping};
use super::model::{Drain, Model, Phase, Run, Seeking};
use super::moment::{ModelId, Moment};
use super::refusal;
use super::scheduler::Scheduler;

/// Time between a stop and a kill, or between two kills, whatever is configured.
const SHORTEST_STOP: Duration = Duration::from_millis(100);

impl Scheduler {
    fn run_mut(&mut self, id: RunId) -> Option<(ModelId, &mut Model)> {
        let model_id = *self.living.get(&id)?;
        Some((model_id, self.model_mut(model_id)?))
    }

    pub(super) fn progressed(&mut self, run_id: RunId) {
        let now = self.now;
        let Some((_, model)) = self.run_mut(run_id) else {
            return;
        };
        let timeout = model.spec.load_timeout;
        if let Some(Run {
            phase: Phase::Loading { until },
            ..
        }) = &mut model.run
        {
            *until = now + timeout;
        }
    }

    pub(super) fn ready(&mut self, run_id: RunId) {
        let now = self.now;
        let Some((id, model)) = self.run_mut(run_id) else {
            return;
        };
        let queued = model.queue.len();
        let Some(run) = model
            .run
            .as_mut()
            .filter(|run| matches!(run.phase, Phase::Loading { .. }))
        else {
            return;
        };
        run.phase = Phase::Ready {
            since: now,
            idle_since: now,
        };
        run.owed = queued;
        model.load_wanted = None;
        model.record.failed = false;
        model.record.retried = false;
        self.moved = true;
        self.ledger.settle(run_id);
        self.sound_queue(id);
        self.dispatch_queue(id);
        self.rested(id);
        self.stir();
    }

    /// Lets a run go: at once if nothing is in flight, else when that is done.
    pub(super) fn drain(&mut self, id: ModelId, why: Drain) {
        let Some(run) = self.model_mut(id).and_then(|model| model.run.as_mut()) else {
            return;
        };
        if run.draining != Some(Drain::Leave) {
            run.draining = Some(why);
        }
        let idle = match run.phase {
            Phase::Loading { .. } => true,
            Phase::Ready { .. } => run.in_flight == 0,
            Phase::Stopping { .. } => false,
        };
        self.moved = true;
        if idle {
            self.stop(id);
        }
    }

    pub(super) fn stop(&mut self, id: ModelId) {
        self.end_process(id, Stopping::Graceful, None);
    }

    /// Ends the run for a failure of its own.
    pub(super) fn kill_for(&mut self, id: ModelId, reason: Reason) {
        self.end_process(id, Stopping::Kill, Some(reason));
    }

    pub(super) fn end_process(&mut self, id: ModelId, how: Stopping, reason: Option<Reason>) {
        let now = self.now;
        let Some(model) = self.model_mut(id) else { return };
        let until = now + model.spec.stop_timeout.max(SHORTEST_STOP);
        let Some(run) = &mut model.run else { return };
        run.phase = Phase::Stopping { until };
        run.killed_for = run.killed_for.take().or(reason);
        let run = run.id;
        self.moved = true;
        self.emit(Effect::Stop { run, how });
        self.arm(until);
        self.stir();
    }

    pub(super) fn ended(&mut self, run_id: RunId, end: End) {
        let Some(id) = self.living.remove(&run_id) else {
            return;
        };
        self.moved = true;
        self.forget_pleas(run_id);
        self.surface(id);
        self.give_memory_back(run_id);
        let Some(run) = self.model_mut(id).and_then(|model| model.run.take()) else {
            return;
        };
        match (run.phase, &run.killed_for) {
            (_, Some(reason)) => {
                let reason = reason.clone();
                self.load_failed(id, reason);
            }
            (Phase::Stopping { .. }, None) => self.stopped(id),
            (Phase::Loading { .. }, None) => self.ended_loading(id, &run, end),
            (Phase::Ready { since, .. }, None) => self.crashed(id, &run, since, end),
        }
        self.stir();
        self.close();
    }

    fn stopped(&mut self, id: ModelId) {
        if let Some(model) = self.model_mut(id) {
            model.record.failed = false;
        }
        self.seek(id);
    }

    fn crashed(&mut self, id: ModelId, run: &Run, ready_at: Moment, end: End) {
        let now = self.now;
        if let Some(model) = self.model_mut(id) {
            if let End::OutOfMemory { shortfall, .. } = &end {
                model.record.learn_shortfall(&run.placement, *shortfall);
            }
            model.record.run_failed(now, ready_at, cause(end));
        }
        self.after_crash(id);
    }

    fn ended_loading(&mut self, id: ModelId, run: &Run, end: End) {
        let End::OutOfMemory { shortfall, .. } = &end else {
            return self.load_failed(id, cause(end));
        };
        let shortfall = *shortfall;
        let Some(model) = self.model_mut(id) else { return };
        let again = !run.demand.alone() && !std::mem::replace(&mut model.record.retried, true);
        model.record.learn_shortfall(&run.placement, shortfall);
        if again {
            model.record.note(cause(end));
            self.retry_after_eviction(id, run);
        } else {
            let text = format!(
                "{} ran out of memory while it loaded, with nobody idle left to stop",
                model.name
            );
            let reason = Reason::new("out_of_memory", text)
                .fact("claim", run.placement.total())
                .because(cause(end));
            self.load_failed(id, reason);
        }
    }

    /// Memory ran out at load although the books said it would fit: whoever is idle on those cards goes, and
    /// the load is tried once more with the larger need when their memory is back.
    fn retry_after_eviction(&mut self, id: ModelId, run: &Run) {
        let mut after = vec![run.id];
        let cards: Vec<CardId> = run.placement.cards().cloned().collect();
        for other in self.idle_on(&cards) {
            after.extend(
                self.model(other)
                    .and_then(|model| model.run.as_ref())
                    .map(|run| run.id),
            );
            self.drain(other, Drain::Evict);
        }
        self.await_room(id, run.demand.clone(), after);
    }

    pub(super) fn idle_on(&self, cards: &[CardId]) -> Vec<ModelId> {
        let on_cards = |run: RunId| {
            let mut accounts = cards.iter().filter_map(|card| self.ledger.account(card));
            accounts.any(|account| !account.held_by(run).is_zero())
        };
        let idle = self.living.iter().filter(|(run, model)| {
            let Some(model) = self.model(**model) else {
                return false;
            };
            let resting = model
                .run
                .as_ref()
                .is_some_and(|run| run.takes_requests() && run.in_flight == 0);
            resting && !model.spec.pinned && on_cards(**run)
        });
        idle.map(|(_, model)| *model).collect()
    }

    /// Everybody who waits is told why; nobody causes the same failure again for a while.
    fn load_failed(&mut self, id: ModelId, reason: Reason) {
        let now = self.now;
        if let Some(model) = self.model_mut(id) {
            model.record.retried = false;
            model.record.load_failed(now, reason);
        }
        self.after_crash(id);
    }

    fn after_crash(&mut self, id: ModelId) {
        let Some(model) = self.model(id) else { return };
        match model.record.held_back(self.now) {
            Some(wait) => {
                let refusal = refusal::load_failed(&model.name, &model.record, Some(wait));
                self.refuse_queue(id, &refusal);
            }
            None => self.seek(id),
        }
    }

    fn give_memory_back(&mut self, run: RunId) {
        let measured = self.ledger.measured_shares(run);
        let taken = if measured.is_empty() {
            self.ledger.claim_shares(run)
        } else {
            measured
        };
        self.ledger.leave(run);
        if taken.is_empty() || self.closing.is_some() {
            self.ledger.release(run);
            self.resume_pleas(run);
        } else {
            self.leaving.insert(run);
            self.emit(Effect::AwaitMemory { run, taken });
        }
    }

    pub(super) fn memory_returned(&mut self, run: RunId) {
        if self.leaving.remove(&run) {
            self.ledger.release(run);
            self.resume_pleas(run);
            self.stir();
        }
    }

    pub(super) fn deepened(&mut self, run: RunId, tokens: u64, used: Bytes) {
        if let Some((_, model)) = self.run_mut(run) {
            model.record.slope.look(run, tokens, used);
            if let (Some(growth), Some(Ok(occupancy))) = (
                model.record.slope.learned(),
                model.run.as_mut().map(|run| run.occupancy.as_mut()),
            ) {
                occupancy.learned(growth);
            }
        }
    }

    pub(super) fn measured(&mut self, run_id: RunId, used: &[(CardId, Bytes)]) {
        let Some(id) = self.living.get(&run_id).copied() else {
            return;
        };
        let Some(name) = self.model(id).map(|model| Arc::clone(&model.name)) else {
            return;
        };
        self.ledger.measure(run_id, &name, used);
        let ready = self.model(id).and_then(|model| model.run.as_ref());
        if ready.is_some_and(|run| matches!(run.phase, Phase::Ready { .. })) {
            self.ledger.settle(run_id);
        }
        let claim: Bytes = self
            .ledger
            .claim_shares(run_id)
            .iter()
            .map(|share| share.bytes)
            .sum();
        if let Some(Model {
            run: Some(run),
            record,
            ..
        }) = self.model_mut(id)
        {
            let total: Bytes = used.iter().map(|(_, bytes)| *bytes).sum();
            if let Ok(occupancy) = &mut run.occupancy {
                occupancy.measured(used);
            }
            if run.demand.alone() && !total.is_zero() && matches!(run.phase, Phase::Ready { .. }) {
                record.measured = record.measured.max(Some(claim));
            } else if !run.demand.alone() {
                record.learned += excess(run, used);
                // The claim has grown by as much; counting from there keeps the same excess from being learned twice.
                run.placement
                    .shares
                    .iter_mut()
                    .for_each(|share| grow_to(share, used));
            }
        }
        self.stir();
    }

    pub(super) fn cards_read(&mut self, cards: &[(CardId, Bytes)]) {
        self.ledger.read(cards);
        self.stir();
    }

    /// Cancels whatever leads to a run; a survey that is out is ignored when it comes back.
    pub(super) fn cease(&mut self, id: ModelId) {
        let Some(model) = self.model_mut(id) else { return };
        match &mut model.seeking {
            Seeking::Survey { stale } => *stale = true,
            Seeking::Room(_) => self.set_seeking(id, Seeking::Nothing),
            Seeking::Nothing => {}
        }
    }
}

/// What the run takes beyond its placement on the card where that is most.
fn excess(run: &Run, used: &[(CardId, Bytes)]) -> Bytes {
    let over = used.iter().map(|(card, bytes)| match run.placement.on(card) {
        planned if planned.is_zero() => Bytes::ZERO,
        planned => bytes.saturating_sub(planned),
    });
    over.max().unwrap_or_default()
}

fn grow_to(share: &mut Share, used: &[(CardId, Bytes)]) {
    let seen = used.iter().find(|(card, _)| *card == share.card);
    share.bytes = share.bytes.max(seen.map_or(Bytes::ZERO, |(_, bytes)| *bytes));
}

fn cause(end: End) -> Reason {
    match end {
        End::Expected => Reason::new(
            "ended",
            "the engine ended by itself, with success, before it was asked to",
        ),
        End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason } => reason,
    }
}
