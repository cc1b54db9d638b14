//! Holds the status of each model for listings, metrics and logs: its engine process, its log and its load
//! counters.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::{End, Hint, IdMap, MemoryModel, Reason};
use plimsoll_config::ConfiguredModel;
use plimsoll_flags::{Parallel, ProgramKind};
use plimsoll_log::Log;
use plimsoll_scheduler::{ModelId, ModelState};
use serde_json::Value;

use super::answer_tally::AnswerTally;
use super::load_inputs::LoadInputs;
use super::run::EngineRun;
use plimsoll_route::{Exposition, MetricKind, ModelProfile};

#[derive(Debug, Default)]
pub(crate) struct ModelStatus {
    pub(super) state: Option<ModelState>,
    /// Context that the model gets instead of its own, since the last survey.
    pub(super) lowered: Option<u64>,
    /// Profile for listings, as of the last forecast.
    pub(super) profile: Option<Rc<ModelProfile>>,
    /// The run that is up, or the last one.
    pub(super) run: Option<Rc<EngineRun>>,
    /// The last failure in the operator's log.
    pub(super) reported: Option<Reason>,
    /// Hints for a failure of the load that is under way, or of the last one.
    pub(super) hints: Vec<Hint>,
    /// Progress of the load that is under way, as the engine reports it.
    pub(super) progress: Option<Value>,
    /// The need of the model by its last survey.
    pub(super) demand: Option<Arc<dyn MemoryModel>>,
    /// Tokens and times of the answers.
    pub(super) answers: AnswerTally,
    /// Inputs of the last survey, and the failure that no further load mends while they stay the same.
    pub(super) looked_at: Option<Arc<LoadInputs>>,
    pub(super) lasting: Option<(Arc<LoadInputs>, Reason)>,
    /// Its engine had to be killed when it was stopped last.
    pub(super) ignores_stop: bool,
    log: Option<Log>,
    loads: u64,
    crashes: u64,
    out_of_memory: u64,
    unstartable: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ModelStatuses(RefCell<IdMap<ModelId, ModelStatus>>);

impl ModelStatuses {
    pub(crate) fn with<T>(&self, model: ModelId, look: impl FnOnce(&mut ModelStatus) -> T) -> T {
        look(self.0.borrow_mut().entry(model).or_default())
    }

    /// The state that displays have of a model.
    pub(crate) fn shown(&self, model: ModelId) -> ModelState {
        self.with(model, |status| status.state.unwrap_or(ModelState::Unloaded))
    }

    /// The need of a model by its last survey.
    pub(crate) fn demand(&self, model: ModelId) -> Option<Arc<dyn MemoryModel>> {
        self.with(model, |status| status.demand.clone())
    }

    /// The failure of an earlier load, if nothing has changed that it depends on.
    pub(super) fn lasting_failure(&self, model: ModelId, inputs: Option<LoadInputs>) -> Option<Reason> {
        let inputs = Arc::new(inputs?);
        self.with(model, |status| {
            status.looked_at = Some(Arc::clone(&inputs));
            status.lasting.take_if(|(before, _)| **before != *inputs);
            status.lasting.as_ref().map(|(_, reason)| reason.clone())
        })
    }

    /// The model's log, created by `make` on first use.
    pub(super) fn log(&self, model: ModelId, make: impl FnOnce() -> Log) -> Log {
        self.with(model, |status| status.log.get_or_insert_with(make).clone())
    }

    pub(super) fn started(&self, model: ModelId, run: &Rc<EngineRun>) {
        self.with(model, |status| {
            status.loads += 1;
            // They belong to the load before.
            status.hints.clear();
            status.progress = None;
            status.run = Some(Rc::clone(run));
        });
    }

    pub(super) fn ended(&self, model: ModelId, end: &End) {
        self.with(model, |status| match end {
            // Only ends that the operator did not ask for are failures.
            End::Expected => {}
            End::Crashed { .. } => status.crashes += 1,
            End::OutOfMemory { .. } => status.out_of_memory += 1,
            End::Unstartable { reason, lasts } => {
                status.unstartable += 1;
                status.lasting = status.looked_at.clone().zip(lasts.then(|| reason.clone()));
            }
        });
    }

    /// Writes the counters of `models`, by name.
    pub(super) fn write(&self, page: &mut Exposition, models: &[(ModelId, String)]) {
        page.family("plimsoll_loads_total", MetricKind::Counter, "Engines started for a model");
        for (model, name) in models {
            page.sample("plimsoll_loads_total", &[("model", name)], self.with(*model, |status| status.loads));
        }
        let name = "plimsoll_failures_total";
        page.family(name, MetricKind::Counter, "Engines that ended although they were not stopped, by cause");
        for (model, model_name) in models {
            let counts =
                self.with(*model, |status| [status.crashes, status.out_of_memory, status.unstartable]);
            // All causes, also those at 0: a rate needs the first value of its series.
            for (cause, count) in ["crash", "out_of_memory", "unstartable"].iter().zip(counts) {
                page.sample(name, &[("model", model_name), ("cause", cause)], count);
            }
        }
        let moved = |model| self.with(model, |status| status.run.as_ref()?.moved.now());
        let moved: Vec<_> = models.iter().filter_map(|(model, name)| Some((name, moved(*model)?))).collect();
        let name = "plimsoll_moved_to_host_bytes";
        if !moved.is_empty() {
            let help = "Memory that the driver has moved from a model's card to host memory";
            page.family(name, MetricKind::Gauge, help);
        }
        for (model, bytes) in moved {
            page.sample(name, &[("model", model)], bytes.get());
        }
        AnswerTally::write(page, models, |model| self.with(model, |status| status.answers.clone()));
    }
}

/// Requests that a llama-server works on at once, where its flags say so; further ones wait in it.
pub(super) fn slots(entry: &ConfiguredModel) -> Option<u32> {
    let params = entry.launch.options()?.params(ProgramKind::LlamaServer).ok()?;
    match params.parallel {
        Parallel::Count(count) => Some(count),
        Parallel::Auto => None,
    }
}
