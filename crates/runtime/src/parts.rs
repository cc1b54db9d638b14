//! Groups the fields of `Runtime` (the driver of the scheduler) by the task that uses them, such as starting
//! engines.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::path::PathBuf;
use std::rc::Rc;

use plimsoll_base::Bytes;
use plimsoll_cards::{Reading, Sampler};
use plimsoll_log::Log;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_process::Launcher;
use plimsoll_process::confinement::EngineUser;
use plimsoll_route::Events;
use plimsoll_scheduler::{ModelId, ModelState, Moment, SchedulerEffect, SchedulerEvent};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Notify, watch};

use super::downloads::Downloads;
use super::event_queue::EventQueue;
use super::needs::MeasuredNeeds;
use super::operator_log::OperatorLog;
use super::overflow::KnownBus;
use super::private_folder::PrivateFolder;
use super::read_ahead::ReadAheads;
use super::request_log::RequestCounts;
use super::slots::WarmSlots;
use super::state::SchedulerState;
use super::survey::{ExactAnswers, Patience, Surveyor};
use super::traces::Traces;
use super::yields::PrecedingPrograms;

/// Bytes of log kept for all models together.
const WHOLE_LOG: Bytes = Bytes::mib(1);
/// Bytes of log kept for one model.
const MODEL_LOG: Bytes = Bytes::kib(256);

/// Events for the scheduler, and its orders about time.
pub(crate) struct Driver {
    pub(crate) queue: EventQueue<(Moment, SchedulerEvent)>,
    /// Empty memory for the effects of the next event.
    pub(crate) effects: Cell<Vec<SchedulerEffect>>,
    pub(crate) wake: watch::Sender<Moment>,
    pub(crate) drained: Notify,
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            queue: EventQueue::default(),
            effects: Cell::default(),
            wake: watch::Sender::new(Moment::NEVER),
            drained: Notify::new(),
        }
    }
}

/// Starts of engines.
pub(crate) struct EngineStarts {
    pub(crate) launcher: Launcher,
    /// The private folders of engines; `None` where none can be made.
    folders: OnceCell<Option<OwnedFolder>>,
    next_folder: Cell<u64>,
    /// Programs that did not create the socket that they were given.
    pub(crate) only_ports: RefCell<HashSet<PathBuf>>,
}

impl EngineStarts {
    pub(crate) fn with(launcher: Launcher) -> Self {
        Self { launcher, folders: OnceCell::new(), next_folder: Cell::new(0), only_ports: RefCell::default() }
    }

    /// A new private folder; `None` where none can be made, which is logged once.
    pub(crate) fn private_folder(&self, user: Option<&EngineUser>) -> Option<PrivateFolder> {
        let root = self.folders.get_or_init(|| {
            let root = PrivateFolder::root(user);
            root.inspect_err(|error| tracing::warn!("cannot create a private folder for engines: {error}"))
                .ok()
        });
        let number = self.next_folder.replace(self.next_folder.get() + 1);
        let folder = PrivateFolder::create(root.as_ref()?, &number.to_string(), user);
        folder
            .inspect_err(|error| tracing::warn!("cannot create a private folder for an engine: {error}"))
            .ok()
    }
}

/// Measurements of the cards, and memory of engines as measured or reported.
pub(crate) struct Readings {
    pub(crate) state: Rc<SchedulerState>,
    pub(crate) sampler: Sampler,
    /// The last reading of the cards.
    pub(crate) last: RefCell<Reading>,
    pub(crate) preceding: PrecedingPrograms,
    pub(crate) bus: KnownBus,
    /// Measured memory of engines that nothing plans.
    pub(crate) needs: MeasuredNeeds,
    /// Engines' reports of their memory.
    pub(crate) answers: ExactAnswers,
}

impl Readings {
    /// `news` takes the names of models whose engines have reported.
    pub(crate) fn of(state: Rc<SchedulerState>, sampler: Sampler, news: UnboundedSender<String>) -> Self {
        Self {
            needs: MeasuredNeeds::of(&state.settings.config),
            state,
            sampler,
            last: RefCell::default(),
            preceding: PrecedingPrograms::default(),
            bus: KnownBus::read(),
            answers: ExactAnswers::new(Some(news)),
        }
    }

    pub(crate) fn surveyor(&self, patience: Patience) -> Surveyor {
        Surveyor::new(&self.state.settings, &self.answers, &self.needs, patience)
    }
}

/// Reports to operators and clients.
pub(crate) struct Reports {
    state: Rc<SchedulerState>,
    pub(crate) operator_log: OperatorLog,
    pub(crate) traces: Option<Traces>,
    pub(crate) counts: RequestCounts,
    pub(crate) events: Events,
    pub(crate) log: Log,
}

impl Reports {
    pub(crate) fn to(state: Rc<SchedulerState>, traces: Option<Traces>) -> Self {
        Self {
            operator_log: OperatorLog::of(Rc::clone(&state)),
            state,
            traces,
            counts: RequestCounts::default(),
            events: Events::default(),
            log: Log::new("plimsoll", WHOLE_LOG),
        }
    }

    /// Publishes the state of a model, with `info` about it, to event streams.
    pub(crate) fn publish(&self, model: ModelId, state: ModelState, info: &Value) {
        self.events.state_changed(&self.state.entry(model).name, state, info);
    }

    /// Publishes a model's new state, unless clients have the same word for the state before.
    pub(crate) fn state_changed(&self, model: ModelId, before: Option<ModelState>, state: ModelState) {
        let is_new =
            before.is_none_or(|before| plimsoll_route::status(before) != plimsoll_route::status(state));
        // A loaded model is reported by its run, which knows what the engine says of it.
        if is_new && state != ModelState::Ready {
            self.publish(model, state, &Value::Null);
        }
    }

    pub(crate) fn model_log(&self, model: ModelId) -> Log {
        // Made on demand, because many models of a long configuration never start.
        let make = || {
            let file = self.state.settings.log_file.clone();
            Log::feeding(&self.state.entry(model).name, MODEL_LOG, &self.log, file)
        };
        self.state.statuses.log(model, make)
    }
}

/// Files of models, and of their engines.
pub(crate) struct ModelFiles {
    pub(crate) ahead: ReadAheads,
    pub(crate) downloads: Rc<Downloads>,
    pub(crate) slots: Rc<WarmSlots>,
}

impl ModelFiles {
    pub(crate) fn of(slots: WarmSlots) -> Self {
        Self { ahead: ReadAheads::default(), downloads: Rc::default(), slots: Rc::new(slots) }
    }
}

/// Orders that are carried out one after the other.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) reload: Mutex<()>,
    /// Changes of flags; the digest of the text that the last one wrote.
    pub(crate) flags: Mutex<Option<String>>,
    /// Held by a forecast, so that forecasts are logged in the order in which they were begun.
    pub(crate) forecast: Mutex<()>,
}
