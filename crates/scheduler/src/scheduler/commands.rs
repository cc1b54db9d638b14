//! Carries out the operator's commands: a new configuration, loading or unloading a model, and shutdown.

use std::time::Duration;

use super::{Closing, Scheduler};
use crate::effect::{RequestRefusal, SchedulerEffect};
use crate::event::ConfigChange;
use crate::failures::FailureRecord;
use crate::models::{ModelSlot, PartingCause, RequestedState, RunPhase};
use crate::refusal;
use crate::spec::ModelSpec;
use crate::time::{ModelId, Moment};

/// Part of a shutdown's time in which engines end by themselves, after the last answers.
const END_WITHIN: Duration = Duration::from_secs(5);

impl Scheduler {
    pub(super) fn configured(&mut self, changes: Vec<(ModelId, ConfigChange)>) {
        self.models.mark_states_dirty();
        for (id, change) in changes {
            match change {
                ConfigChange::Added(spec) => self.add(id, spec),
                ConfigChange::Replaced(spec) => self.replace(id, spec),
                ConfigChange::Retuned(spec) => self.retune(id, spec),
                ConfigChange::Removed => self.remove(id),
            }
        }
        self.mark_dirty();
    }

    fn add(&mut self, id: ModelId, spec: ModelSpec) {
        // The driver may report a model that came back under its old number.
        if self.models.get(id).is_some() {
            return self.replace(id, spec);
        }
        self.models.insert(id, ModelSlot::new(spec));
        self.seek(id);
    }

    /// Replaces the engine of a model: the old run drains, and waiting requests wait for the new one.
    fn replace(&mut self, id: ModelId, spec: ModelSpec) {
        let now = self.now;
        let Some(slot) = self.models.get_mut(id) else { return self.add(id, spec) };
        slot.name = spec.name.as_str().into();
        slot.spec = spec;
        slot.removed = false;
        // Failures of the old configuration say nothing about the new one.
        slot.record = FailureRecord::default();
        if slot.run.is_some() {
            // It was loaded, so it is loaded again: a change of flags must not unload a model.
            slot.load_wanted.get_or_insert(now);
        }
        self.queue.forget_depths(&slot.line);
        self.cancel_search(id);
        self.part(id, PartingCause::Reconfigured);
        self.seek(id);
    }

    fn retune(&mut self, id: ModelId, spec: ModelSpec) {
        let Some(slot) = self.models.get_mut(id) else { return self.add(id, spec) };
        slot.spec = spec;
        self.spare_pinned(id);
        self.set_depth_wait(id, None);
        self.dispatch_queue(id);
        // A shorter time to live may already be over.
        self.arm_timers();
    }

    fn remove(&mut self, id: ModelId) {
        self.withdraw(id, &refusal::unconfigured(), PartingCause::Unconfigured);
        if let Some(slot) = self.models.get_mut(id) {
            slot.removed = true;
        }
    }

    pub(super) fn load_wanted(&mut self, id: ModelId) {
        let now = self.now;
        let Some(slot) = self.models.get_mut(id) else { return };
        // A load that is under way for a request gets an order of its own: the request may leave before it is
        // ready.
        let stays = slot.run.as_ref().is_some_and(|run| run.takes_requests());
        if !stays && !slot.removed {
            slot.load_wanted.get_or_insert(now);
            // The operator asks for it and has probably removed the cause.
            slot.record.forgive();
            self.seek(id);
            self.turns_changed();
        }
    }

    pub(super) fn unload_wanted(&mut self, id: ModelId) {
        let Some(slot) = self.models.get(id) else { return };
        let refusal = refusal::unloaded(&slot.name);
        self.withdraw(id, &refusal, PartingCause::Hand);
    }

    pub(super) fn pin_wanted(&mut self, id: ModelId, until: Moment) {
        let now = self.now;
        let Some(slot) = self.models.get_mut(id) else { return };
        slot.pinned_until = Some(until).filter(|until| *until > now);
        self.spare_pinned(id);
        // Waiting models choose other victims now, or may choose this one again.
        self.mark_dirty();
        // The end of the pin is a timer, and without the pin a time to live may already be over.
        self.arm_timers();
    }

    pub(super) fn keep_wanted(&mut self, id: ModelId, time: Option<Duration>) {
        let Some(slot) = self.models.get_mut(id) else { return };
        if let Some(run) = &mut slot.run {
            run.keep = time;
        }
        if let Some(end) = slot.idle_end() {
            // A time that is over already is a timer for now.
            self.arm(end.max(self.now));
        }
    }

    /// Refuses all requests that wait for the model, and lets its run go.
    fn withdraw(&mut self, id: ModelId, refusal: &RequestRefusal, cause: PartingCause) {
        self.refuse_queue(id, refusal);
        self.cancel_search(id);
        self.part(id, cause);
    }

    pub(super) fn shutdown(&mut self) {
        if self.closing.is_some() {
            return;
        }
        let (now, whole) = (self.now, self.settings.drain);
        let closing =
            Closing { cut_off: now + whole.saturating_sub(END_WITHIN.min(whole / 2)), end: now + whole };
        self.closing = Some(closing);
        self.arm(closing.cut_off);
        for id in self.models.ids() {
            // One that was ordered to stop before may have had more time than the shutdown has.
            if let Some(run) = self.models.get_mut(id).and_then(|slot| slot.run.as_mut())
                && let RunPhase::Stopping { until } = &mut run.phase
            {
                *until = closing.end.min(*until);
                let until = *until;
                self.arm(until);
            }
            self.withdraw(id, &refusal::shutting_down(), PartingCause::Hand);
            // A survey under way will be ignored, so its model would be shown as queued for ever.
            if self.models.get_mut(id).is_some_and(ModelSlot::void_survey) {
                self.set_seeking(id, RequestedState::Nothing);
            }
        }
        for run in std::mem::take(&mut self.runs.leaving) {
            self.placements.ledger.release(run);
        }
        self.close();
    }

    /// Reports once that no engine is left.
    pub(super) fn close(&mut self) {
        if self.closing.is_some() && self.runs.living.is_empty() && !self.drained {
            self.drained = true;
            self.emit(SchedulerEffect::Drained);
        }
    }
}
