//! Finds the request that likely crashed an engine, and tries it again alone.
//!
//! DECISION: a request may crash each engine that gets it, and takes all answers of the engine with it each
//! time. The one that was sent last is suspected, or the one that was there before. It is tried again when no
//! other request waits, and alone. If the engine dies again, it is the first at the next engine, alone too:
//! one that dies by itself after some time has answered it by then. If that engine dies too, the request is
//! refused. If an engine dies without it, the suspicion ends. All others are tried again without a limit.

use std::time::Duration;

use plimsoll_base::RunId;

use super::Scheduler;
use crate::effect::SchedulerEffect;
use crate::models::{ModelSlot, RunState};
use crate::time::{ModelId, Moment, RequestId};

/// Time for which a suspect has its engine alone.
const ALONE_FOR: Duration = Duration::from_secs(10);
/// Time after which a suspect goes although others wait; the engine finishes what it has first.
const ALONE_AFTER: Duration = Duration::from_secs(20);
/// A request with so many kills is refused.
pub(super) const CONDEMNED: u32 = 3;

impl Scheduler {
    /// Takes the crash of a run, whose requests have not come back yet.
    pub(super) fn blame(&mut self, model: ModelId, run: RunId) {
        let now = self.now;
        if let Some(slot) = self.models.get_mut(model) {
            // Those that wait were not there.
            self.queue.exonerate(&mut slot.line);
        }
        let (mut likely, mut dead) = (None, 0);
        for (id, request) in self.queue.sent_to(run) {
            let rank = (request.kills, request.deaths > 0, request.first_order);
            (request.deaths, request.excused) = (request.deaths + 1, true);
            likely = likely.max(Some((rank, id)));
            dead += 1;
        }
        let Some((_, id)) = likely else { return };
        for (other, request) in self.queue.sent_to(run) {
            if other == id {
                request.suspect = Some(now);
                request.kills = (request.kills + 1).max(if dead == 1 { 2 } else { 1 });
                let kills = request.kills;
                self.effects.push(SchedulerEffect::Suspected { request: id, model, kills });
            } else {
                (request.suspect, request.kills) = (None, 0);
            }
        }
    }

    /// True if the request may be sent to the run: a suspect waits until the run has no other.
    pub(super) fn may_join(&self, request: RequestId, run: &RunState) -> bool {
        let suspect = self.queue.get(request).is_some_and(|request| request.suspect.is_some());
        !suspect || run.in_flight() == 0
    }

    /// Keeps a run for the suspect that it was sent.
    pub(super) fn isolate(&mut self, model: ModelId, request: RequestId) {
        let until = self.now + ALONE_FOR;
        if let Some(request) = self.queue.get(request).filter(|request| request.suspect.is_some())
            && let Some(run) = self.models.get_mut(model).and_then(|slot| slot.run.as_mut())
        {
            run.alone = Some((until, request.order));
            self.arm(until);
        }
    }

    /// Sends suspects that have waited for long, and ends the time for which one has its run alone.
    pub(super) fn try_suspect(&mut self, model: ModelId) {
        let now = self.now;
        let Some(slot) = self.models.get_mut(model) else { return };
        let lonely = slot.run.as_mut().and_then(|run| run.alone.take_if(|(until, _)| *until <= now));
        let waits = slot.line.suspect().and_then(|id| self.queue.get(id)?.suspect);
        let overdue = waits.filter(|since| *since + ALONE_AFTER <= now).and(slot.line.suspect());
        if let Some(id) = overdue {
            self.queue.bring_forward(&mut slot.line, id);
        }
        if lonely.is_some() || overdue.is_some() {
            self.dispatch_queue(model);
        }
    }

    /// The next time for [`Self::try_suspect`].
    pub(super) fn suspect_timer(&self, slot: &ModelSlot) -> Option<Moment> {
        let alone = slot.run.as_ref().and_then(|run| Some(run.alone?.0));
        let waits = slot.line.suspect().and_then(|id| self.queue.get(id)?.suspect);
        let due = waits.map(|since| since + ALONE_AFTER).filter(|due| *due > self.now);
        alone.into_iter().chain(due).min()
    }
}
