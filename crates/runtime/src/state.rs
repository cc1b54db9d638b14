//! Holds the state that all parts of the runtime read: the scheduler, the configured models, the engine
//! processes (runs), and the clock.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use plimsoll_base::IdMap;
use plimsoll_config::ConfiguredModel;
use plimsoll_scheduler::{ModelId, ModelView, Moment, RunId, Scheduler, SchedulerSnapshot};

use super::RuntimeSettings;
use super::registry::ModelRegistry;
use super::run::EngineRun;
use super::status::ModelStatuses;

/// Only the runtime changes the scheduler, the registry and the runs.
#[derive(Debug)]
pub struct SchedulerState {
    pub(crate) settings: Rc<RuntimeSettings>,
    pub(crate) scheduler: RefCell<Scheduler>,
    pub(crate) registry: RefCell<ModelRegistry>,
    pub(crate) statuses: ModelStatuses,
    /// Engines from their start to the report of their end.
    pub(crate) engines: RefCell<IdMap<RunId, Rc<EngineRun>>>,
    start: Instant,
}

impl SchedulerState {
    pub(crate) fn new(settings: Rc<RuntimeSettings>) -> Self {
        Self {
            scheduler: RefCell::new(Scheduler::new(settings.scheduler.clone())),
            settings,
            registry: RefCell::default(),
            statuses: ModelStatuses::default(),
            engines: RefCell::default(),
            start: Instant::now(),
        }
    }

    pub fn run(&self, run: RunId) -> Option<Rc<EngineRun>> {
        self.engines.borrow().get(&run).cloned()
    }

    pub fn runs(&self) -> Vec<Rc<EngineRun>> {
        self.engines.borrow().values().cloned().collect()
    }

    /// Process groups of the engines that are up.
    pub(crate) fn process_groups(&self) -> Vec<u32> {
        self.engines.borrow().values().filter_map(|run| run.pid()).collect()
    }

    /// Runs that could be sent a request and have none.
    pub fn idle_runs(&self) -> Vec<RunId> {
        self.scheduler.borrow().idle_runs()
    }

    /// The models of the configuration.
    pub fn present(&self) -> Vec<(ModelId, Rc<ConfiguredModel>)> {
        let registry = self.registry.borrow();
        registry.present().map(|(id, entry)| (id, Rc::clone(entry))).collect()
    }

    /// The number of models in the configuration.
    pub fn count(&self) -> usize {
        self.registry.borrow().present().count()
    }

    pub fn entry(&self, model: ModelId) -> Rc<ConfiguredModel> {
        Rc::clone(self.registry.borrow().entry(model))
    }

    pub(crate) fn is_present(&self, model: ModelId) -> bool {
        self.registry.borrow().is_present(model)
    }

    pub(crate) fn view(&self, model: ModelId) -> Option<ModelView> {
        self.scheduler.borrow().view(model, self.now())
    }

    /// Requests for the model in progress.
    pub fn in_flight(&self, model: ModelId) -> u32 {
        self.view(model).map_or(0, |view| view.in_flight)
    }

    pub fn snapshot(&self) -> SchedulerSnapshot {
        self.scheduler.borrow().at(self.now()).snapshot()
    }

    pub fn up_since(&self) -> Instant {
        self.start
    }

    pub(crate) fn now(&self) -> Moment {
        self.moment(Instant::now())
    }

    pub(crate) fn moment(&self, time: Instant) -> Moment {
        Moment::at(time.saturating_duration_since(self.start))
    }

    /// Unix time of the start.
    pub(crate) fn started(&self) -> u64 {
        self.unix_time(Moment::START)
    }

    /// Unix time of a moment. Fractions are dropped last, so that each call gives the same second.
    pub(crate) fn unix_time(&self, at: Moment) -> u64 {
        let ago = self.now().since(at);
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.saturating_sub(ago).as_secs())
    }
}
