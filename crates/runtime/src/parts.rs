//! Groups the fields of the runtime by the task that uses them.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

use plimsoll_base::{Bytes, CardId};
use plimsoll_cards::{Reading, Sampler};
use plimsoll_log::Log;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_process::Launcher;
use plimsoll_route::Events;
use plimsoll_scheduler::{Moment, SchedulerEffect, SchedulerEvent};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Notify, watch};

use super::downloads::Downloads;
use super::event_queue::EventQueue;
use super::needs::MeasuredNeeds;
use super::operator_log::OperatorLog;
use super::read_ahead::ReadAheads;
use super::request_log::RequestCounts;
use super::slots::WarmSlots;
use super::survey::ExactAnswers;
use super::traces::Traces;

/// Bytes of log kept for all models together.
const WHOLE_LOG: Bytes = Bytes::mib(1);

/// Events for the scheduler, and its time.
pub(crate) struct Driver {
    pub(crate) start: Instant,
    pub(crate) queue: EventQueue<(Moment, SchedulerEvent)>,
    /// Empty memory for the effects of the next event.
    pub(crate) effects: Cell<Vec<SchedulerEffect>>,
    pub(crate) wake: watch::Sender<Moment>,
    pub(crate) drained: Notify,
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            start: Instant::now(),
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
    pub(crate) folders: OnceCell<Option<OwnedFolder>>,
    pub(crate) next_folder: Cell<u64>,
    /// Programs that did not create the socket that they were given.
    pub(crate) only_ports: RefCell<HashSet<PathBuf>>,
}

impl EngineStarts {
    pub(crate) fn with(launcher: Launcher) -> Self {
        Self { launcher, folders: OnceCell::new(), next_folder: Cell::new(0), only_ports: RefCell::default() }
    }
}

/// Measurements of the cards, and memory of engines as measured or reported.
pub(crate) struct Readings {
    pub(crate) sampler: Sampler,
    /// The last reading of the cards.
    pub(crate) last: RefCell<Reading>,
    /// Processes with precedence on each card, at the last reading.
    pub(crate) with_precedence: RefCell<HashSet<(CardId, u32)>>,
    /// Measured memory of engines that nothing plans.
    pub(crate) needs: MeasuredNeeds,
    /// Engines' reports of their memory.
    pub(crate) answers: ExactAnswers,
}

impl Readings {
    /// `news` takes the names of models whose engines have reported.
    pub(crate) fn of(sampler: Sampler, needs: MeasuredNeeds, news: UnboundedSender<String>) -> Self {
        Self {
            sampler,
            last: RefCell::default(),
            with_precedence: RefCell::default(),
            needs,
            answers: ExactAnswers::new(Some(news)),
        }
    }
}

/// Reports to operators and clients.
pub(crate) struct Reports {
    pub(crate) operator_log: OperatorLog,
    pub(crate) traces: Option<Traces>,
    pub(crate) counts: RequestCounts,
    pub(crate) events: Events,
    pub(crate) log: Log,
}

impl Reports {
    pub(crate) fn to(traces: Option<Traces>) -> Self {
        Self {
            operator_log: OperatorLog::default(),
            traces,
            counts: RequestCounts::default(),
            events: Events::default(),
            log: Log::new("plimsoll", WHOLE_LOG),
        }
    }
}

/// Files of models, and of their engines.
pub(crate) struct ModelFiles {
    pub(crate) ahead: ReadAheads,
    pub(crate) downloads: Downloads,
    pub(crate) slots: WarmSlots,
}

impl ModelFiles {
    pub(crate) fn of(slots: WarmSlots) -> Self {
        Self { ahead: ReadAheads::default(), downloads: Downloads::default(), slots }
    }
}

/// Orders that are carried out one after the other.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) reload: Mutex<()>,
    /// Held by a forecast, so that forecasts are logged in the order in which they were begun.
    pub(crate) forecast: Mutex<()>,
}
