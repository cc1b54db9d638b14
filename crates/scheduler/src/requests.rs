//! The way of a request: in, perhaps into the queue, to a run, and out, exactly once.

use plimsoll_base::RunId;

use super::effect::{Effect, Refusal};
use super::gate::Gate;
use super::model::{Drain, Model, Phase, Request};
use super::moment::{ModelId, Moment, RequestId};
use super::refusal;
use super::scheduler::Scheduler;

impl Scheduler {
    pub(super) fn arrived(&mut self, id: RequestId, model_id: ModelId, deadline: Moment) {
        let (now, stamp) = (self.now, self.next_stamp());
        let mut request = Request {
            model: model_id,
            arrived: now,
            deadline,
            bounced: false,
            depth: None,
            sounding: false,
            run: None,
        };
        if self.closing.is_some() {
            return self.refuse(id, refusal::shutting_down());
        }
        let limit = self.settings.queue;
        let Some(model) = self.model_mut(model_id).filter(|model| !model.removed) else {
            return self.refuse(id, refusal::unconfigured());
        };
        model.last_used = Some(now);
        if model.queue.is_empty()
            && model.watched().is_none()
            && let Some(run) = model.open_run()
        {
            run.in_flight += 1;
            run.stamp = stamp;
            request.run = Some(run.id);
            let dispatch = Effect::Dispatch {
                request: id,
                run: run.id,
            };
            self.requests.insert(id, request);
            return self.emit(dispatch);
        }
        if model.queue.len() >= limit {
            let refusal = refusal::queue_full(&model.name, limit);
            return self.refuse(id, refusal);
        }
        if model.run.is_none()
            && let Some(wait) = model.record.held_back(now)
        {
            let refusal = refusal::load_failed(&model.name, &model.record, Some(wait));
            return self.refuse(id, refusal);
        }
        model.queue.push_back(id);
        self.enqueued(id, request);
        if self
            .model(model_id)
            .is_some_and(|model| model.watched().is_some_and(|(run, _)| run.takes_requests()))
        {
            self.sound_queue(model_id);
        }
    }

    fn enqueued(&mut self, id: RequestId, request: Request) {
        self.requests.insert(id, request);
        self.deadlines.insert((request.deadline, id));
        self.arm(request.deadline);
        self.seek(request.model);
        // A preload for which somebody waits is none any more.
        if self
            .model(request.model)
            .is_some_and(|model| model.queue.len() == 1)
        {
            self.stir_for_turns();
        }
    }

    /// The request is answered, or its client is gone.
    pub(super) fn over(&mut self, id: RequestId, tokens: Option<u64>) {
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        match request.run {
            Some(run) => {
                self.leave_depth(request.model, run, id, tokens);
                self.landed(request.model, run);
            }
            None => {
                self.deadlines.remove(&(request.deadline, id));
                self.unqueue(request.model, id);
            }
        }
    }

    fn unqueue(&mut self, model: ModelId, id: RequestId) {
        if let Some(model) = self.model_mut(model) {
            model.queue.retain(|queued| *queued != id);
        }
        self.surface(model);
        self.stir();
        self.dispatch_queue(model);
    }

    fn leave_depth(&mut self, model: ModelId, run: RunId, id: RequestId, tokens: Option<u64>) {
        let run = self.model_mut(model).and_then(|model| model.run_mut(run));
        if let Some(Ok(occupancy)) = run.map(|run| run.occupancy.as_mut()) {
            occupancy.leave(id, tokens);
        }
    }

    /// One request fewer is in flight.
    fn landed(&mut self, model_id: ModelId, run_id: RunId) {
        let (now, stamp) = (self.now, self.next_stamp());
        let Some(model) = self.model_mut(model_id) else {
            return;
        };
        model.last_used = Some(now);
        let queued = !model.queue.is_empty();
        let Some(run) = model.run_mut(run_id) else {
            return;
        };
        run.in_flight = run.in_flight.saturating_sub(1);
        run.stamp = stamp;
        if queued {
            self.dispatch_queue(model_id);
        }
        self.rested(model_id);
    }

    /// Looks at a run that may have nothing left in flight: it stops, or its idle time begins.
    pub(super) fn rested(&mut self, model_id: ModelId) {
        let now = self.now;
        let Some(model) = self.model_mut(model_id) else {
            return;
        };
        let ttl = model.spec.ttl.filter(|_| !model.spec.pinned);
        let Some(run) = model.run.as_mut().filter(|run| run.in_flight == 0) else {
            return;
        };
        let Phase::Ready { idle_since, .. } = &mut run.phase else {
            return;
        };
        *idle_since = now;
        match run.draining {
            Some(Drain::Leave | Drain::Evict) => self.stop(model_id),
            None => {
                if let Some(ttl) = ttl {
                    self.arm(now + ttl);
                }
                self.stir_for_idle();
            }
        }
    }

    /// Sends what is queued to the run, as far as it takes requests.
    pub(super) fn dispatch_queue(&mut self, model_id: ModelId) {
        let stamp = self.next_stamp();
        while self.may_go(model_id)
            && let Some((id, run, satisfied)) = self
                .model_mut(model_id)
                .and_then(|model| next_dispatch(model, stamp))
        {
            if let Some(request) = self.requests.get_mut(&id) {
                request.run = Some(run);
                let deadline = request.deadline;
                self.deadlines.remove(&(deadline, id));
            }
            self.send(id, run);
            if satisfied {
                self.stir();
            }
        }
    }

    /// Says whether the front of the queue may be sent, and begins to do what is to be done first. What was being done for a
    /// front before it ends with that one.
    fn may_go(&mut self, model_id: ModelId) -> bool {
        let Some(model) = self.model_mut(model_id) else {
            return false;
        };
        let (Some(front), Some(run)) = (model.queue.front().copied(), model.open_run().map(|run| run.id))
        else {
            return false;
        };
        let gate = self
            .model(model_id)
            .map_or(Gate::Open, |model| self.gate(model, front));
        if gate != Gate::Deep {
            self.surface(model_id);
        }
        match gate {
            Gate::Open => {}
            Gate::Sound { exact } => self.sound(front, run, exact),
            Gate::Sounding => {}
            Gate::Deep => self.wait_for_depth(model_id),
        }
        gate == Gate::Open
    }

    pub(super) fn bounced(&mut self, id: RequestId) {
        let Some(mut request) = self.requests.remove(&id) else {
            return;
        };
        let Some(run_id) = request.run.take() else {
            self.requests.insert(id, request);
            return;
        };
        let now = self.now;
        self.moved = true;
        self.leave_depth(request.model, run_id, id, None);
        if let Some(run) = self
            .model_mut(request.model)
            .and_then(|model| model.run_mut(run_id))
        {
            run.in_flight = run.in_flight.saturating_sub(1);
            run.suspect.get_or_insert(now);
            self.arm(now + super::timers::SUSPICION);
            self.stir();
        }
        if let Some(refusal) = self.no_second_try(&request) {
            return self.refuse(id, refusal);
        }
        request.bounced = true;
        if let Some(model) = self.model_mut(request.model) {
            model.queue.push_front(id);
            if let Some(run) = &mut model.run {
                run.owed += 1;
            }
        }
        self.enqueued(id, request);
        self.dispatch_queue(request.model);
        self.rested(request.model);
    }

    fn no_second_try(&self, request: &Request) -> Option<Refusal> {
        if self.closing.is_some() {
            return Some(refusal::shutting_down());
        }
        let Some(model) = self.model(request.model).filter(|model| !model.removed) else {
            return Some(refusal::unconfigured());
        };
        let held = model.record.held_back(self.now).filter(|_| model.run.is_none());
        if request.bounced {
            return Some(refusal::engine_died(&model.name, &model.record, held));
        }
        held.map(|wait| refusal::load_failed(&model.name, &model.record, Some(wait)))
    }

    /// Refuses a request that is in no table any more.
    pub(super) fn refuse(&mut self, request: RequestId, refusal: Refusal) {
        self.emit(Effect::Refuse {
            request,
            refusal: Box::new(refusal),
        });
    }

    /// Refuses everything that is queued for the model; nobody wants it loaded any more.
    pub(super) fn refuse_queue(&mut self, model_id: ModelId, refusal: &Refusal) {
        let Some(model) = self.model_mut(model_id) else {
            return;
        };
        model.load_wanted = None;
        model.preload = false;
        let queue = std::mem::take(&mut model.queue);
        self.surface(model_id);
        for id in queue {
            if let Some(request) = self.requests.remove(&id) {
                self.deadlines.remove(&(request.deadline, id));
                self.refuse(id, refusal.clone());
            }
        }
        self.moved = true;
        self.stir();
    }

    /// Refuses what has waited until its deadline.
    pub(super) fn expire(&mut self) {
        while let Some((deadline, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= self.now) {
            self.deadlines.remove(&(deadline, id));
            let Some(request) = self.requests.remove(&id) else {
                continue;
            };
            self.unqueue(request.model, id);
            let refusal = refusal::deadline(
                self.model(request.model),
                &self.ledger,
                self.now.since(request.arrived),
            );
            self.refuse(id, refusal);
        }
    }

    pub(super) fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }
}

/// Takes the next request off the queue if the run takes it. The last value says that the run has now been sent
/// all that was queued when it became ready.
fn next_dispatch(model: &mut Model, stamp: u64) -> Option<(RequestId, RunId, bool)> {
    model.queue.front()?;
    let run = model.open_run()?;
    run.in_flight += 1;
    run.stamp = stamp;
    let satisfied = run.owed == 1;
    run.owed = run.owed.saturating_sub(1);
    let run = run.id;
    Some((model.queue.pop_front()?, run, satisfied))
}
