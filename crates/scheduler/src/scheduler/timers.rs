//! Handles deadlines: of requests, stalled loads, slow stops, idle models, and a shutdown.

use std::time::Duration;

use plimsoll_base::Reason;

use super::Scheduler;
use crate::effect::Stopping;
use crate::models::{ModelSlot, PartingCause, RunPhase};
use crate::time::{ModelId, Moment};

/// Time that a suspect run has to end by itself: a process that has crashed takes a moment to write its core
/// file.
pub(super) const SUSPICION: Duration = Duration::from_secs(2);

impl Scheduler {
    pub(super) fn tick(&mut self) {
        // A tick may come early; the pending wake-up then stays pending, or it would be requested twice.
        if self.now >= self.wake {
            self.wake = Moment::NEVER;
        }
        self.expire();
        self.end_yields();
        let now = self.now;
        self.models.iter_mut().for_each(|slot| slot.forget_left(now));
        if self.closing.is_some_and(|closing| closing.cut_off <= self.now) {
            self.cut_off();
        }
        for id in self.models.ids() {
            if let Some(slot) = self.models.get_mut(id) {
                slot.pinned_until = slot.pinned_until.filter(|until| *until > now);
            }
            let timer = self.models.get(id).and_then(|slot| self.run_timer(slot));
            if timer.is_some_and(|at| at <= now) {
                self.act_on(id);
            }
            // The time for which loads were held back may be over.
            self.seek(id);
            self.try_suspect(id);
            self.extend_service(id);
        }
        self.mark_dirty();
        self.arm_timers();
    }

    /// Requests a wake-up for the next timer; one that is due already is a timer for now.
    pub(super) fn arm_timers(&mut self) {
        if let Some(at) = self.next_timer() {
            self.arm(at.max(self.now));
        }
    }

    /// A hold of idle runs begins or ends; those whose time has passed meanwhile end now.
    pub(super) fn hold_idle(&mut self, occupied: bool) {
        self.holds_idle = occupied;
        self.tick();
    }

    /// The time at which a model's run is acted on.
    fn run_timer(&self, slot: &ModelSlot) -> Option<Moment> {
        let run = slot.run.as_ref()?;
        match (run.phase, run.suspect) {
            (RunPhase::Loading { until, .. } | RunPhase::Stopping { until }, _) => Some(until),
            (RunPhase::Ready { .. }, Some(since)) => Some(since + SUSPICION),
            (RunPhase::Ready { .. }, None) if run.in_flight() > 0 => run.probe_due(),
            _ if self.holds_idle || self.state().is_measured(&run.placement, run.id) => None,
            (RunPhase::Ready { .. }, None) => slot.idle_end(),
        }
    }

    fn act_on(&mut self, id: ModelId) {
        let Some(slot) = self.models.get(id) else { return };
        let (Some(run), name) = (&slot.run, &slot.name) else { return };
        match run.phase {
            RunPhase::Loading { .. } => {
                let seconds = slot.spec.load_timeout.as_secs_f64();
                let text = format!(
                    "{name} made no progress in loading for {seconds:.0} s (`load-timeout`) and was killed"
                );
                self.kill_for(id, Reason::new("load_stalled", text));
            }
            // Repeated until the process is gone: a driver call may hold it for long after SIGKILL.
            RunPhase::Stopping { .. } => self.end_process(id, Stopping::Kill, None),
            RunPhase::Ready { .. } if run.suspect.is_some() => {
                let text = format!(
                    "the engine of model {name} failed Plimsoll's test requests, did not end by itself, and \
                        was killed"
                );
                self.kill_for(id, Reason::new("unresponsive", text));
            }
            RunPhase::Ready { .. } if run.in_flight() > 0 => self.probe(run.id),
            RunPhase::Ready { .. } => {
                if let Some(ttl) = slot.time_to_live() {
                    self.part(id, PartingCause::Idle { ttl });
                }
            }
        }
    }

    /// Stops all runs, busy or not, when a shutdown gives answers no more time.
    fn cut_off(&mut self) {
        for id in self.models.ids() {
            let run = self.models.get(id).and_then(|slot| slot.run.as_ref());
            if run.is_some_and(|run| !run.is_stopping()) {
                self.stop(id);
            }
        }
    }

    fn next_timer(&self) -> Option<Moment> {
        let now = self.now;
        let yields = self.ledger().accounts().iter().filter_map(|account| Some(account.kept()?.until));
        let closing = self.closing.map(|closing| closing.cut_off).filter(|at| *at > now);
        let models = self.models.iter().flat_map(|(_, slot)| self.timers(slot).into_iter().flatten());
        let all = models.chain(yields).chain(self.queue.next_deadline()).chain(closing);
        all.filter(|at| *at != Moment::NEVER).min()
    }

    /// The timers of a model and of its run.
    fn timers(&self, slot: &ModelSlot) -> [Option<Moment>; 6] {
        let now = self.now;
        let is_occupied = slot.run.is_none() && slot.wanted();
        [
            self.run_timer(slot),
            slot.pinned_until,
            self.suspect_timer(slot),
            self.overtime_due(slot),
            slot.record.deferred(now).filter(|_| is_occupied).map(|wait| now + wait),
            slot.left.map(|left| left.until).filter(|_| slot.line.is_empty()),
        ]
    }
}
