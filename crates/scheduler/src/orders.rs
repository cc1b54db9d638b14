//! What people want: a new configuration, a model loaded or gone, the daemon's end.

use super::effect::{Effect, Refusal};
use super::event::Change;
use super::model::{Drain, Model, Phase, Seeking};
use super::moment::ModelId;
use super::refusal;
use super::retry::Record;
use super::scheduler::Scheduler;
use super::spec::ModelSpec;

impl Scheduler {
    pub(super) fn configured(&mut self, changes: Vec<(ModelId, Change)>) {
        self.moved = true;
        for (id, change) in changes {
            match change {
                Change::Added(spec) => self.add(id, spec),
                Change::Replaced(spec) => self.replace(id, spec),
                Change::Retuned(spec) => self.retune(id, spec),
                Change::Removed => self.remove(id),
            }
        }
        self.stir();
    }

    fn add(&mut self, id: ModelId, spec: ModelSpec) {
        if self.model(id).is_some() {
            return self.replace(id, spec);
        }
        let Ok(index) = usize::try_from(id.0) else { return };
        if self.models.len() <= index {
            self.models.resize_with(index + 1, || None);
        }
        self.models[index] = Some(Model::new(spec));
        self.seek(id);
    }

    /// The old run drains and the new kind takes its place; requests that wait, wait for that.
    fn replace(&mut self, id: ModelId, spec: ModelSpec) {
        let now = self.now;
        let Some(model) = self.model_mut(id) else {
            return self.add(id, spec);
        };
        model.name = spec.name.as_str().into();
        model.spec = spec;
        model.removed = false;
        model.record = Record::default();
        let queue: Vec<_> = model.queue.iter().copied().collect();
        if model.run.is_some() {
            model.load_wanted.get_or_insert(now);
        }
        // Another kind of engine may count otherwise.
        for request in queue {
            if let Some(request) = self.requests.get_mut(&request) {
                request.depth = None;
            }
        }
        self.cease(id);
        self.drain(id, Drain::Leave);
        self.seek(id);
    }

    fn retune(&mut self, id: ModelId, spec: ModelSpec) {
        let Some(model) = self.model_mut(id) else {
            return self.add(id, spec);
        };
        model.spec = spec;
        self.surface(id);
        self.dispatch_queue(id);
        if let Some(at) = self.next_timer() {
            self.arm(at.max(self.now));
        }
    }

    fn remove(&mut self, id: ModelId) {
        self.withdraw(id, &refusal::unconfigured());
        if let Some(model) = self.model_mut(id) {
            model.removed = true;
        }
    }

    pub(super) fn load_wanted(&mut self, id: ModelId) {
        let now = self.now;
        let Some(model) = self.model_mut(id) else { return };
        let stays = model
            .run
            .as_ref()
            .is_some_and(|run| run.takes_requests() || loads(run.phase));
        if !stays && !model.removed {
            model.load_wanted.get_or_insert(now);
            model.record.forgive();
            self.seek(id);
            self.stir_for_turns();
        }
    }

    pub(super) fn unload_wanted(&mut self, id: ModelId) {
        let Some(model) = self.model(id) else { return };
        let refusal = refusal::unloaded(&model.name);
        self.withdraw(id, &refusal);
    }

    /// Nobody waits for the model any more and its run goes.
    fn withdraw(&mut self, id: ModelId, refusal: &Refusal) {
        self.refuse_queue(id, refusal);
        self.cease(id);
        self.drain(id, Drain::Leave);
    }

    pub(super) fn shutdown(&mut self) {
        if self.closing.is_some() {
            return;
        }
        let end = self.now + self.settings.drain;
        self.closing = Some(end);
        self.arm(end);
        for id in self.model_ids() {
            self.withdraw(id, &refusal::shutting_down());
            if let Some(Model {
                seeking: seeking @ Seeking::Survey { .. },
                ..
            }) = self.model_mut(id)
            {
                *seeking = Seeking::Nothing;
            }
        }
        for run in std::mem::take(&mut self.leaving) {
            self.ledger.release(run);
        }
        self.close();
    }

    /// Says once that no engine is left.
    pub(super) fn close(&mut self) {
        if self.closing.is_some() && self.living.is_empty() && !self.drained {
            self.drained = true;
            self.emit(Effect::Drained);
        }
    }
}

fn loads(phase: Phase) -> bool {
    matches!(phase, Phase::Loading { .. })
}
