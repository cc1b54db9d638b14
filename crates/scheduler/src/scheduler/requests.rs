//! Handles a request in the scheduler: it arrives, may wait, is sent to an engine, and ends exactly once.

use plimsoll_base::{Reason, RunId};

use super::Scheduler;
use super::blame::CONDEMNED;
use crate::depth::RequestDepth;
use crate::effect::{RequestRefusal, SchedulerEffect};
use crate::event::UnknownRequest;
use crate::models::{Drain, ModelSlot, RunPhase};
use crate::queue::{RequestPlace, RequestState};
use crate::refusal;
use crate::state::DepthGate;
use crate::time::{ModelId, Moment, RequestId};

impl Scheduler {
    pub(super) fn arrived(&mut self, id: RequestId, request: RequestState) {
        let (now, model, stamp) = (self.now, request.model, self.runs.next_stamp());
        if self.closing.is_some() {
            return self.refuse(id, refusal::shutting_down());
        }
        let (limit, loaded) = (self.settings.queue, self.models.last_ready);
        let Some(slot) = self.models.get_mut(model).filter(|slot| !slot.removed) else {
            return self.refuse(id, refusal::unconfigured());
        };
        slot.pauses.end(now, slot.spec.hold, loaded);
        slot.open.note(now, slot.open_requests() + 1);
        let most = slot.spec.max_requests;
        // The fast path: there is nothing to decide.
        if request.suspect.is_none()
            && let Some(run) = slot.run_for(&request)
        {
            run.send(now, stamp, most, request.slotless);
            let (run, leaves) = (run.id, run.leaves());
            slot.served(now);
            self.queue.insert_sent(id, request, run);
            if leaves {
                self.has_served(model);
            }
            return self.emit(SchedulerEffect::Dispatch { request: id, run });
        }
        // A bound on waiting requests bounds their bodies, which stay in memory while they wait.
        if slot.line.len() >= limit {
            let refusal = refusal::queue_full(&slot.name, limit);
            return self.refuse(id, refusal);
        }
        if slot.run.is_none()
            && let Some(wait) = slot.record.refuses(now)
        {
            // Refused at once: waiting for a model that is known to crash would only end in the same refusal
            // later.
            let refusal = refusal::load_failed(&slot.name, &slot.record, Some(wait));
            return self.refuse(id, refusal);
        }
        let (line, is_suspect, client) = (&mut slot.line, request.suspect.is_some(), request.client);
        let into = |age| if is_suspect { line.push_last(age) } else { line.push_back(client, age) };
        self.queue.push(id, request, into);
        let alongside_suspect = slot.line.suspect().is_some();
        self.queued(&request);
        self.is_lent(model);
        if let Some(due) = self.models.get(model).and_then(|slot| self.overtime_due(slot)) {
            self.arm(due.max(now));
        }
        self.measure_queue(model);
        // Else a line means that the run is full.
        if alongside_suspect {
            self.dispatch_queue(model);
        }
    }

    fn queued(&mut self, request: &RequestState) {
        self.arm(request.deadline);
        self.seek(request.model);
        // With this request the last client may wait, so that nothing is left to hold idle models for.
        if !self.models.none_waits() && self.state().all_wait() && !self.state().idle_runs().is_empty() {
            self.mark_dirty();
        }
        // The first request makes a pressing load of a preload, which changes the order of turns.
        if self.models.get(request.model).is_some_and(|slot| slot.line.len() == 1) {
            self.turns_changed();
        }
    }

    pub(super) fn finished(
        &mut self,
        id: RequestId,
        tokens: Option<u64>,
        failed: bool,
    ) -> Result<(), UnknownRequest> {
        if let Some(request) = self.queue.get(id).copied()
            && let RequestPlace::Sent(run) = request.place
        {
            if failed {
                self.probe(run);
            } else {
                self.answered(&request);
            }
        }
        self.over(id, tokens)
    }

    /// Ends a request that was answered, or whose client has left.
    pub(super) fn over(&mut self, id: RequestId, tokens: Option<u64>) -> Result<(), UnknownRequest> {
        let request = self.take_request(id).ok_or(UnknownRequest(id))?;
        match request.place {
            RequestPlace::Sent(run) => {
                self.leave_depth(run, id, tokens);
                self.landed(&request, run);
            }
            RequestPlace::Queued => {
                self.note_left(&request);
                self.unqueued(request.model);
            }
            // Its run has no trace of it any more.
            RequestPlace::Unanswered(_) => {}
        }
        Ok(())
    }

    /// Removes a request from every table.
    pub(super) fn take_request(&mut self, id: RequestId) -> Option<RequestState> {
        let model = self.queue.get(id)?.model;
        let line = self.models.get_mut(model).map(|slot| &mut slot.line);
        self.queue.remove(line, id)
    }

    /// A request of the model has left the queue without being sent.
    fn unqueued(&mut self, model: ModelId) {
        self.set_depth_wait(model, None);
        self.mark_dirty();
        self.dispatch_queue(model);
        // While a request waited, the time to live of an idle run was not asked for.
        if let Some(end) = self.models.get(model).and_then(ModelSlot::idle_end) {
            self.arm(end.max(self.now));
        }
    }

    pub(super) fn leave_depth(&mut self, run: RunId, id: RequestId, tokens: Option<u64>) {
        if let Some(occupancy) = self.run_mut(run).and_then(|(_, run)| run.occupancy.as_mut()) {
            occupancy.leave(id, tokens);
        }
    }

    /// One request fewer is in flight.
    fn landed(&mut self, request: &RequestState, run: RunId) {
        let model = request.model;
        let (now, stamp) = (self.now, self.runs.next_stamp());
        let Some(slot) = self.models.get_mut(model) else { return };
        slot.last_used = Some(now);
        let queued = !slot.line.is_empty();
        let Some(run) = slot.run_mut(run) else { return };
        // The end of a request counts as use as well: a long answer must not make its run look the oldest.
        run.land(request);
        run.stamp = stamp;
        if run.in_flight() == 0 && !queued {
            slot.pauses.begin(now);
        }
        if queued {
            self.dispatch_queue(model);
        }
        self.rested(model);
    }

    /// Handles a run that may have no request in flight any more: it stops, or its idle time begins.
    pub(super) fn rested(&mut self, model: ModelId) {
        let now = self.now;
        let Some(slot) = self.models.get_mut(model) else { return };
        let ttl = slot.time_to_live();
        let Some(run) = slot.run.as_mut().filter(|run| run.in_flight() == 0) else { return };
        let RunPhase::Ready { idle_since, .. } = &mut run.phase else { return };
        *idle_since = now;
        match run.draining {
            // It drained for this moment.
            Some(Drain::Leave | Drain::Evict) => self.stop(model),
            None => {
                if let Some(ttl) = ttl {
                    self.arm(now + ttl);
                }
                self.became_idle(model);
            }
        }
    }

    /// Sends queued requests to the run, as far as it takes them.
    pub(super) fn dispatch_queue(&mut self, model: ModelId) {
        let (now, stamp) = (self.now, self.runs.next_stamp());
        if self.is_lent(model) {
            return;
        }
        while self.front_may_go(model) {
            let Some(slot) = self.models.get_mut(model) else { return };
            let front = slot.line.front().and_then(|id| self.queue.get(id));
            let (most, slotless) = (slot.spec.max_requests, front.is_some_and(|front| front.slotless));
            let Some(run) = slot.open_run() else { return };
            let first = run.is_unused();
            run.send(now, stamp, most, slotless);
            let (id, leaves) = (run.id, run.leaves());
            slot.served(now);
            let Some(request) = self.queue.send_front(&mut slot.line, id, now) else { return };
            self.send(request, id);
            self.isolate(model, request);
            // A new run is no victim before its first request.
            if first {
                self.mark_dirty();
            }
            if leaves {
                self.has_served(model);
            }
        }
    }

    // DECISION: a run that has had its `max-requests` ends after the answers that it still gives. One long
    // answer would make all others stand until then, so after the patience they go to the old run again,
    // until the long answer has ended.
    /// Sends requests that have waited for the patience to a run that only one long answer keeps.
    pub(super) fn extend_service(&mut self, model: ModelId) {
        let (last, now) = (self.queue.last_sent(), self.now);
        let due = self.models.get(model).and_then(|slot| self.overtime_due(slot));
        let due = due.filter(|due| *due <= now);
        if due.is_some()
            && let Some(run) = self.models.get_mut(model).and_then(|slot| slot.run.as_mut())
        {
            run.work_overtime(last);
            self.models.mark_states_dirty();
            self.dispatch_queue(model);
        }
    }

    pub(super) fn overtime_due(&self, slot: &ModelSlot) -> Option<Moment> {
        slot.run.as_ref().filter(|run| run.has_served())?;
        Some(slot.line.oldest()? + self.settings.patience)
    }

    /// Handles a run that was sent its last request: a model that the configuration loads is loaded again
    /// after it.
    fn has_served(&mut self, model: ModelId) {
        self.models.mark_states_dirty();
        if let Some(slot) = self.models.get_mut(model) {
            slot.preload = slot.spec.preload;
        }
    }

    /// Decides whether the first request of the queue may be sent, and starts any work needed before. A wait
    /// for depth of an earlier first request ends.
    fn front_may_go(&mut self, model: ModelId) -> bool {
        let Some(slot) = self.models.get_mut(model) else { return false };
        let (Some(front), Some(run)) = (slot.line.front(), slot.open_run().map(|run| run.id)) else {
            return false;
        };
        let Some(slot) = self.models.get(model) else { return false };
        if !slot.run.as_ref().is_some_and(|run| self.may_join(front, run)) {
            return false;
        }
        let gate = self.state().gate(slot, front);
        if gate != DepthGate::TooDeep {
            self.set_depth_wait(model, None);
        }
        match gate {
            DepthGate::Open | DepthGate::Closed => {}
            DepthGate::Measure { exact } => self.measure_depth(front, run, exact),
            DepthGate::TooDeep => self.wait_for_depth(model),
        }
        gate == DepthGate::Open
    }

    fn send(&mut self, request: RequestId, run: RunId) {
        let sent = self.queue.get(request).copied();
        if let Some(sent) = sent
            && let Some(occupancy) = self.models.get_mut(sent.model).and_then(ModelSlot::occupancy_mut)
        {
            // A request of unknown depth counts with a full slot, the most that the engine lets it reach.
            let most = occupancy.slots().each;
            let tokens = sent.depth.map_or(most, |depth| depth.tokens(occupancy.slots()));
            if tokens > 0 {
                occupancy.enter(request, tokens);
            }
        }
        self.emit(SchedulerEffect::Dispatch { request, run });
    }

    /// Asks the driver for the depth of a request.
    fn measure_depth(&mut self, request: RequestId, run: RunId, exact: bool) {
        if self.queue.begin_measuring(request) {
            self.emit(SchedulerEffect::MeasureDepth { request, run, exact });
        }
    }

    /// Asks for the depths of all requests queued for a run: that costs a look at each body, and all at once.
    pub(super) fn measure_queue(&mut self, model: ModelId) {
        let Some((run, unknown)) = self.state().unmeasured(model) else { return };
        for request in unknown {
            self.measure_depth(request, run, false);
        }
    }

    pub(super) fn depth_measured(
        &mut self,
        id: RequestId,
        run: RunId,
        depth: Option<RequestDepth>,
    ) -> Result<(), UnknownRequest> {
        self.queue.get(id).ok_or(UnknownRequest(id))?;
        // A request that was sent in the meantime, or whose model has another engine, needs no depth of this
        // one.
        let Some(request) = self.queue.depth_measured(id, depth) else { return Ok(()) };
        if let Some(slot) = self.models.get_mut(request.model) {
            let tracked = slot.tracked().filter(|(tracked, _)| tracked.id == run && tracked.takes_requests());
            if let Some(slots) = tracked.map(|(_, occupancy)| *occupancy.slots()) {
                // The only requests that may pass others: they need no memory, so they delay none.
                if request.depth.is_some_and(|depth| depth.tokens(&slots) == 0) {
                    self.queue.bring_forward(&mut slot.line, id);
                }
                if depth.is_none() {
                    self.queue.settle_depth(id);
                }
                if request.depth.is_some_and(|depth| depth.overflows(&slots)) {
                    slot.overflows += 1;
                }
            }
        }
        self.dispatch_queue(request.model);
        Ok(())
    }

    /// Queues a request again that its run did not answer.
    pub(super) fn requeue(&mut self, id: RequestId, mut request: RequestState) {
        if let Some(refusal) = self.no_second_try(&request) {
            return self.refuse(id, refusal);
        }
        request.bounced |= !std::mem::take(&mut request.excused);
        let now = self.now;
        let Some(slot) = self.models.get_mut(request.model) else { return };
        if request.suspect.is_some() && request.kills < 2 {
            request.suspect = Some(now);
            self.queue.push(id, request, |age| slot.line.push_last(age));
        } else {
            // It has waited for its turn once already.
            self.queue.push(id, request, |age| slot.line.push_front(age));
        }
        self.queued(&request);
        self.dispatch_queue(request.model);
        self.rested(request.model);
    }

    fn no_second_try(&self, request: &RequestState) -> Option<RequestRefusal> {
        if self.closing.is_some() {
            return Some(refusal::shutting_down());
        }
        let Some(slot) = self.models.get(request.model).filter(|slot| !slot.removed) else {
            return Some(refusal::unconfigured());
        };
        let now = self.now;
        // A run that is up serves the retry at once, whatever its predecessors did.
        let is_down = slot.run.is_none();
        if request.kills >= CONDEMNED || request.bounced && !request.excused {
            let occupied = slot.record.deferred(now).filter(|_| is_down);
            return Some(refusal::engine_died(&slot.name, request.deaths, &slot.record, occupied));
        }
        let occupied = slot.record.refuses(now).filter(|_| is_down);
        occupied.map(|wait| refusal::load_failed(&slot.name, &slot.record, Some(wait)))
    }

    /// Refuses a request that is in no table any more.
    pub(super) fn refuse(&mut self, request: RequestId, refusal: RequestRefusal) {
        let refusal = Box::new(refusal);
        self.emit(SchedulerEffect::Refuse { request, refusal });
    }

    /// Refuses all queued requests of the model; it is not wanted any more.
    pub(super) fn refuse_queue(&mut self, model: ModelId, refusal: &RequestRefusal) {
        let Some(slot) = self.models.get_mut(model) else { return };
        // Else the model would be loaded again at once without a request.
        (slot.load_wanted, slot.left) = (None, None);
        slot.preload = false;
        let refused = self.queue.clear(&mut slot.line);
        self.set_depth_wait(model, None);
        for id in refused {
            self.refuse(id, refusal.clone());
        }
        self.models.mark_states_dirty();
        self.mark_dirty();
    }

    /// Refuses the front of a queue.
    pub(super) fn refuse_front(&mut self, model: ModelId, refusal: RequestRefusal) {
        let front = self.models.get(model).and_then(|slot| slot.line.front());
        if let Some(id) = front {
            self.take_request(id);
            self.refuse(id, refusal);
        }
    }

    /// Refuses requests that have waited until their deadline.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        while let Some(id) = self.queue.expired(now) {
            // Without the request nothing may be waited for any more.
            let model = self.queue.get(id).map(|request| request.model);
            let still = model.and_then(|model| self.state().wait_reason(model)).map(|(_, reason)| reason);
            let Some(request) = self.take_request(id) else { return };
            self.unqueued(request.model);
            let waited = now.since(request.arrived);
            let refusal = refusal::deadline(self.models.get(request.model), still, waited);
            self.refuse(id, refusal);
        }
    }

    /// Shows the result of a check of a model's files, unless the model was requested in the meantime.
    pub(super) fn forecast_failed(&mut self, id: ModelId, reason: Reason) {
        self.models.mark_states_dirty();
        if let Some(slot) = self.models.get_mut(id)
            && slot.run.is_none()
            && !slot.wanted()
        {
            slot.record.found_fault(reason);
        }
    }
}
