//! Everything that happens because nothing else did.

use std::time::Duration;

use plimsoll_base::Reason;

use super::effect::Stopping;
use super::model::{Drain, Model, Phase};
use super::moment::{ModelId, Moment};
use super::scheduler::Scheduler;

/// How long a run off which a request bounced has to end by itself.
pub(super) const SUSPICION: Duration = Duration::from_secs(2);

enum Due {
    LoadStalled,
    StillThere,
    Suspect,
    Idle,
}

impl Scheduler {
    pub(super) fn tick(&mut self) {
        if self.now >= self.wake {
            self.wake = Moment::NEVER;
        }
        self.expire();
        if self.closing.is_some_and(|at| at <= self.now) {
            self.cut_off();
        }
        for id in self.model_ids() {
            if let Some(due) = self.model(id).and_then(|model| self.due(model)) {
                self.act_on(id, &due);
            }
            self.seek(id);
        }
        self.stir();
        if let Some(at) = self.next_timer() {
            self.arm(at);
        }
    }

    fn due(&self, model: &Model) -> Option<Due> {
        let run = model.run.as_ref()?;
        let (due, what) = match (run.phase, run.suspect) {
            (Phase::Loading { until }, _) => (until, Due::LoadStalled),
            (Phase::Stopping { until }, _) => (until, Due::StillThere),
            (Phase::Ready { .. }, Some(since)) => (since + SUSPICION, Due::Suspect),
            (Phase::Ready { .. }, None) => (idle_end(model)?, Due::Idle),
        };
        (due <= self.now).then_some(what)
    }

    fn act_on(&mut self, id: ModelId, due: &Due) {
        let Some(model) = self.model(id) else { return };
        match due {
            Due::LoadStalled => {
                let seconds = model.spec.load_timeout.as_secs_f64();
                let text = format!(
                    "{} made no progress in loading for {seconds:.0} s and was killed",
                    model.name
                );
                self.kill_for(id, Reason::new("load_stalled", text));
            }
            Due::StillThere => self.end_process(id, Stopping::Kill, None),
            Due::Suspect => {
                let text = format!(
                    "the engine of {} dropped a request, did not end, and was killed",
                    model.name
                );
                self.kill_for(id, Reason::new("unresponsive", text));
            }
            Due::Idle => self.drain(id, Drain::Leave),
        }
    }

    /// At the end of the drain time whatever still runs is stopped, busy or not.
    fn cut_off(&mut self) {
        for id in self.model_ids() {
            let run = self.model(id).and_then(|model| model.run.as_ref());
            if run.is_some_and(|run| !matches!(run.phase, Phase::Stopping { .. })) {
                self.stop(id);
            }
        }
    }

    pub(super) fn next_timer(&self) -> Option<Moment> {
        let runs = self.models.iter().flatten().filter_map(|model| {
            let run = model.run.as_ref()?;
            match (run.phase, run.suspect) {
                (Phase::Loading { until } | Phase::Stopping { until }, _) => Some(until),
                (Phase::Ready { .. }, Some(since)) => Some(since + SUSPICION),
                (Phase::Ready { .. }, None) => idle_end(model),
            }
        });
        let first = self.deadlines.first().map(|(at, _)| *at);
        let closing = self.closing.filter(|at| *at > self.now);
        runs.chain(first).chain(closing).min()
    }
}

/// When an idle run's time is over.
fn idle_end(model: &Model) -> Option<Moment> {
    let run = model
        .run
        .as_ref()
        .filter(|run| run.takes_requests() && run.in_flight == 0)?;
    let Phase::Ready { idle_since, .. } = run.phase else {
        return None;
    };
    let ttl = model.spec.ttl.filter(|_| !model.spec.pinned)?;
    Some(idle_since + ttl)
}
