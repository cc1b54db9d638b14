//! Checks engines that failed to answer a request, and decides what happens to the request.
//!
//! A closed connection may mean a dead engine or one failed request, so a health check over a new connection
//! decides about the request. Whether the engine is to be replaced is decided by a probe: small requests of
//! our own.

use plimsoll_base::RunId;

use super::Scheduler;
use crate::effect::SchedulerEffect;
use crate::event::{Health, ProbeOutcome, UnknownRequest};
use crate::queue::RequestPlace;
use crate::refusal;
use crate::time::RequestId;

impl Scheduler {
    pub(super) fn bounced(&mut self, id: RequestId) -> Result<(), UnknownRequest> {
        let (request, run_id) = self.queue.hold(id).ok_or(UnknownRequest(id))?;
        self.leave_depth(run_id, id, None);
        let Some((_, run)) = self.run_mut(run_id) else {
            // The run ended before its death was noticed here.
            self.release_occupied(id);
            return Ok(());
        };
        run.land(&request);
        let check = run.unanswered(id);
        // No further check is needed for a run that is taken for dead already.
        if run.suspect.is_some() {
            self.suspect(run_id);
        } else if check {
            self.emit(SchedulerEffect::CheckHealth { run: run_id });
        }
        self.probe(run_id);
        Ok(())
    }

    // DECISION: requests of clients that fail only start a probe, and its own requests decide. A client that
    // sends what the engine cannot digest, or several that do, prove nothing about the engine. In llama.cpp
    // #13281 and with a CUDA error that stays, `/health` answers while each request fails.
    /// Starts a probe of a run that failed a request, unless one is under way or was a moment ago.
    pub(super) fn probe(&mut self, run_id: RunId) {
        let now = self.now;
        if self.run_mut(run_id).is_some_and(|(_, run)| run.begin_probe(now)) {
            self.emit(SchedulerEffect::Probe { run: run_id });
        }
    }

    pub(super) fn slots_known(&mut self, run_id: RunId, slots: u32) {
        if let Some((model, run)) = self.run_mut(run_id) {
            run.slots = Some(slots.max(1));
            self.dispatch_queue(model);
        }
    }

    /// Takes a client that left without a byte. Clients with time-outs are the only sign of an engine that
    /// hangs.
    pub(super) fn gave_up(&mut self, id: RequestId) -> Result<(), UnknownRequest> {
        let now = self.now;
        let request = self.queue.get(id).copied();
        self.over(id, None)?;
        if let Some(request) = request
            && let RequestPlace::Sent(run_id) = request.place
            && self.run_mut(run_id).is_some_and(|(_, run)| run.gives_up(now, request.sent))
        {
            self.probe(run_id);
        }
        Ok(())
    }

    pub(super) fn probed(&mut self, run_id: RunId, outcome: ProbeOutcome) {
        let now = self.now;
        let Some((_, run)) = self.run_mut(run_id) else { return };
        run.end_probe(now);
        // A process that was ordered to stop fails in any case.
        if outcome == ProbeOutcome::Fails && run.is_ready() {
            self.suspect(run_id);
        } else if let Some(due) = run.probe_due() {
            self.arm(due);
        }
    }

    pub(super) fn health_checked(&mut self, run_id: RunId, health: Health) {
        let Some((model, slot)) = self.living_mut(run_id) else { return };
        let Some(run) = slot.run_mut(run_id) else { return };
        let fails = match health {
            Health::Answers => false,
            Health::Fails => true,
            // An engine that serves one request at a time is silent while it works for another client.
            Health::Silent => run.in_flight() == 0,
        };
        if fails {
            return self.suspect(run_id);
        }
        let unanswered = run.take_unanswered();
        let refusal = refusal::unanswered(&slot.name);
        for id in unanswered {
            match self.take_request(id) {
                // The second time the cause is in the request.
                Some(request) if request.bounced => self.refuse(id, refusal.clone()),
                // An engine may close a connection in the moment in which a request arrives on it.
                Some(request) => self.requeue(id, request),
                None => {}
            }
        }
        // The unanswered request has freed a place at the run.
        self.dispatch_queue(model);
        self.rested(model);
    }

    /// Takes a run for dead: it gets no more requests, and those without an answer wait for the next run.
    fn suspect(&mut self, run_id: RunId) {
        let now = self.now;
        let Some((_, run)) = self.run_mut(run_id) else { return };
        run.suspect.get_or_insert(now);
        let unanswered = run.take_unanswered();
        self.models.mark_states_dirty();
        self.arm(now + super::timers::SUSPICION);
        self.mark_dirty();
        for id in unanswered {
            self.release_occupied(id);
        }
    }

    /// Queues a held request again.
    pub(super) fn release_occupied(&mut self, id: RequestId) {
        if let Some(request) = self.take_request(id) {
            self.requeue(id, request);
        }
    }
}
