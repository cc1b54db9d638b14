//! Holds the state of one model: configuration, request queue, engine process, and its search for memory.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, CardId, ModelNeed, NeedSize, RunId};

use super::pauses::ClientPauses;
use super::run::RunState;
use crate::effect::ModelState;
use crate::failures::FailureRecord;
use crate::occupancy::Occupancy;
use crate::place::{NeedAnswers, PlacementQuery};
use crate::queue::{PeakConcurrency, RequestLine, RequestState};
use crate::spec::ModelSpec;
use crate::time::{ModelId, Moment, SearchId};

/// Answers that usually take less time are of a moment.
const QUICK: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default)]
pub(crate) struct ModelSlot {
    pub(crate) name: Arc<str>,
    pub(crate) spec: ModelSpec,
    pub(in crate::models) seeking: RequestedState,
    /// Set while the next request needs more memory than the run's claim covers.
    pub(in crate::models) depth_wait: Option<MemoryWait>,
    pub(crate) run: Option<RunState>,
    pub(crate) line: RequestLine,
    /// Time since which an operator, or the replacement of its run, requests a load.
    pub(crate) load_wanted: Option<Moment>,
    pub(crate) preload: bool,
    /// Time until which an operator keeps it from being stopped for others or for being idle.
    pub(crate) pinned_until: Option<Moment>,
    /// Gone from the configuration; dropped once its run has ended.
    pub(crate) removed: bool,
    /// Time at which a request was sent to it, or ended, last. A refused one never reached it.
    pub(crate) last_used: Option<Moment>,
    /// Time that its last load took; None before the first.
    pub(crate) load_time: Option<Duration>,
    /// Usual time of an answer; None before the first.
    pub(crate) answer_time: Option<Duration>,
    pub(crate) pauses: ClientPauses,
    /// Its own requests that were open at once lately.
    pub(crate) open: PeakConcurrency,
    pub(crate) left: Option<LeftClient>,
    /// The time at which its run was last told to leave for another model.
    pub(crate) turn_ended: Moment,
    /// The configuration loads it, and it left for another model: it is loaded again where memory is free.
    pub(crate) comes_back: bool,
    /// The largest share of its last run's claim.
    pub(crate) last_claim: Bytes,
    /// Requests with a prompt longer than a slot; the engine refuses them by itself.
    pub(crate) overflows: u64,
    pub(crate) record: FailureRecord,
    /// The state last reported to the driver.
    pub(in crate::models) reported: ModelState,
}

/// A client that left while it waited for the model. Clients with a time limit ask again: until then, and
/// while a request waits, the model counts as waited for since the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftClient {
    pub(crate) since: Moment,
    pub(crate) until: Moment,
}

/// Progress of a model without a run towards its next run.
#[derive(Clone, Debug, Default)]
pub(crate) enum RequestedState {
    #[default]
    Nothing,
    Survey {
        /// The configuration changed during the survey, so that its result is void.
        stale: bool,
    },
    Room(Box<RoomSearch>),
}

/// Search for memory for a model that was surveyed and can load.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoomSearch {
    pub(crate) id: SearchId,
    pub(crate) need: ModelNeed,
    pub(crate) plan: PlanProgress,
    pub(crate) wait: MemoryWait,
    /// The model's need on empty cards, if the largest model loads first and it is known.
    pub(crate) size: Option<Bytes>,
    pub(crate) since: Moment,
    /// Runs whose memory must be free again before it starts, even if it would fit earlier.
    pub(crate) after: Vec<RunId>,
    pub(crate) neighbours: NeighbourQuery,
    /// Its files were read ahead.
    pub(crate) has_read: bool,
    /// Time of the loads of runs that left for it.
    pub(crate) displaced: Duration,
}

/// What the plan has told of the model's need, and what it was asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanProgress {
    pub(crate) answers: NeedAnswers,
    /// The last question that has no answer.
    pub(crate) requested: Option<Moment>,
    /// Since then, the model cannot be placed for want of an answer.
    pub(crate) lacking_since: Option<Moment>,
    /// Questions since it was placed last, and those of them that repeat one.
    pub(crate) rounds: u32,
    pub(crate) repeats: u32,
}

/// Obstacles between a waiting model and its memory, as the last search found them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RoomObstacle {
    /// Unknown before the cards are read.
    #[default]
    Unread,
    /// Memory that is kept free on these cards for a time, and memory of these runs: it needs all of that.
    Occupied { kept: Vec<CardId>, runs: Vec<RunId> },
    /// A start measures the free memory of its cards, or will: of this model, where one is to be named.
    Motion { of: Option<ModelId> },
    /// The plan has not told yet what the model takes.
    Unplanned,
    /// Models before it get the memory.
    Turn,
    /// Other requests of the model itself.
    OwnRequests,
}

impl RoomObstacle {
    /// The cards on which memory is kept free, and the runs, that it waits for.
    pub(crate) fn occupied(&self) -> (&[CardId], &[RunId]) {
        match self {
            Self::Occupied { kept, runs } => (kept, runs),
            _ => (&[], &[]),
        }
    }
}

/// State of the request to guarded processes to release idle memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NeighbourQuery {
    #[default]
    Before,
    Pending,
    Done,
}

/// The memory that a model waits for, as the last search found it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryWait {
    /// Runs that stop for it.
    pub(crate) victims: Vec<RunId>,
    pub(crate) obstacle: RoomObstacle,
    /// The model's need on the cards for which the runs stop.
    pub(crate) needs: Bytes,
    pub(crate) cards: Vec<CardId>,
}

impl ModelSlot {
    pub(crate) fn new(spec: ModelSpec) -> Self {
        Self { name: spec.name.as_str().into(), preload: spec.preload, spec, ..Self::default() }
    }

    pub(crate) fn seeking(&self) -> &RequestedState {
        &self.seeking
    }

    pub(crate) fn room(&self) -> Option<&RoomSearch> {
        match &self.seeking {
            RequestedState::Room(room) => Some(room),
            _ => None,
        }
    }

    pub(crate) fn room_mut(&mut self) -> Option<&mut RoomSearch> {
        match &mut self.seeking {
            RequestedState::Room(room) => Some(room),
            _ => None,
        }
    }

    /// Voids the result of a survey that is under way; returns whether there is one.
    pub(crate) fn void_survey(&mut self) -> bool {
        match &mut self.seeking {
            RequestedState::Survey { stale } => {
                *stale = true;
                true
            }
            _ => false,
        }
    }

    /// True while it waits for memory, to load or to go deeper.
    pub(crate) fn waits(&self) -> bool {
        self.wait().is_some()
    }

    /// A running model's wait for memory that its next request needs.
    pub(crate) fn depth_wait(&self) -> Option<&MemoryWait> {
        self.depth_wait.as_ref()
    }

    /// Its wait for memory. It waits in one way at a time: a model that wants depth has a run, one that wants
    /// room has none.
    pub(crate) fn wait(&self) -> Option<&MemoryWait> {
        self.depth_wait.as_ref().or_else(|| self.room().map(|room| &room.wait))
    }

    pub(crate) fn wait_mut(&mut self) -> Option<&mut MemoryWait> {
        match (&mut self.depth_wait, &mut self.seeking) {
            (Some(wait), _) => Some(wait),
            (None, RequestedState::Room(room)) => Some(&mut room.wait),
            _ => None,
        }
    }

    /// True if a request, an operator or the configuration requires it to be loaded.
    pub(crate) fn wanted(&self) -> bool {
        self.pressing() || self.preload
    }

    /// True if it may stop other models: a preload alone may not.
    pub(crate) fn pressing(&self) -> bool {
        !self.line.is_empty() || self.load_wanted.is_some() || self.left.is_some()
    }

    /// True for a model that the configuration loads and that was loaded before.
    pub(crate) fn is_back(&self) -> bool {
        self.spec.preload && self.load_time.is_some()
    }

    /// Its own requests that have not ended.
    pub(crate) fn open_requests(&self) -> usize {
        let in_flight = self.run.as_ref().map_or(0, RunState::in_flight);
        self.line.len() + usize::try_from(in_flight).unwrap_or(usize::MAX)
    }

    /// Takes the time of an answer that is complete.
    pub(crate) fn answered(&mut self, took: Duration) {
        self.answer_time = Some(self.answer_time.map_or(took, |usual| (usual * 3 + took) / 4));
    }

    /// A request was sent, so that a client that had left is served again.
    pub(crate) fn served(&mut self, now: Moment) {
        self.last_used = Some(now);
        self.left = None;
    }

    /// Stops to expect a client that did not come again.
    pub(crate) fn forget_left(&mut self, now: Moment) {
        self.left.take_if(|left| self.line.is_empty() && left.until <= now);
    }

    pub(crate) fn state(&self) -> ModelState {
        match (&self.run, &self.seeking) {
            // A run hides the search for the next one: a replaced model drains and is queued at the same
            // time.
            (Some(run), _) => run.state(),
            (None, RequestedState::Survey { .. } | RequestedState::Room(_)) => ModelState::Queued,
            (None, RequestedState::Nothing) if self.record.failed => ModelState::Failed,
            (None, RequestedState::Nothing) => ModelState::Unloaded,
        }
    }

    /// The need, or that which was measured in place of an unknown one.
    pub(crate) fn known_need<'n>(&self, need: &'n ModelNeed) -> Cow<'n, ModelNeed> {
        let measured = self.record.measured.filter(|_| need.is_alone());
        let of_size = |size| ModelNeed { size: NeedSize::Declared(size), named: need.named.clone() };
        measured.map_or(Cow::Borrowed(need), |size| Cow::Owned(of_size(size)))
    }

    /// The question for cards of this model.
    pub(crate) fn query<'q>(&'q self, need: &'q ModelNeed, answers: &'q NeedAnswers) -> PlacementQuery<'q> {
        PlacementQuery {
            name: &self.name,
            need,
            answers,
            learned: self.record.learned(),
            allowed: &self.spec.allowed,
            port: self.spec.port,
            apart: 0,
        }
    }

    /// Runs that stop for it, whether it is to load or to go deeper.
    pub(crate) fn victims(&self) -> impl Iterator<Item = &RunId> {
        let victims = self.wait().into_iter().flat_map(|wait| &wait.victims);
        victims.chain(self.room().into_iter().flat_map(|room| &room.after))
    }

    /// Cause of its wait; `None` if it waits for no memory.
    pub(crate) fn obstacle(&self) -> Option<&RoomObstacle> {
        self.wait().map(|wait| &wait.obstacle)
    }

    /// Returns the run if it is this one.
    pub(crate) fn run_mut(&mut self, id: RunId) -> Option<&mut RunState> {
        self.run.as_mut().filter(|run| run.id == id)
    }

    /// Never stopped to make room for another model, nor for being idle.
    pub(crate) fn is_pinned(&self) -> bool {
        self.spec.pinned || self.pinned_until.is_some()
    }

    /// The run, if it may be sent a request now.
    pub(crate) fn open_run(&mut self) -> Option<&mut RunState> {
        let limit = self.limit();
        self.run.as_mut().filter(|run| run.is_open(limit))
    }

    /// True if its only waiting requests are those that wait for a check of the engine that dropped them.
    pub(crate) fn is_checked(&self) -> bool {
        self.line.is_empty() && self.run.as_ref().is_some_and(RunState::is_checked)
    }

    /// The run that takes a new request at once: no request waits, and depth costs nothing.
    pub(crate) fn free_run(&self) -> Option<RunId> {
        let run = self.run.as_ref().filter(|run| run.is_open(self.limit()))?;
        (self.line.is_empty() && run.occupancy.is_none()).then_some(run.id)
    }

    /// The run, if it takes this new request at once.
    pub(crate) fn run_for(&mut self, request: &RequestState) -> Option<&mut RunState> {
        let open = self.free_run().is_some();
        self.run.as_mut().filter(|run| open || request.slotless && run.takes_any())
    }

    // DECISION: an engine gets as many requests as it has slots. Those beyond would wait there in its own
    // order, so that clients took no turns, and a model that leaves would first answer all of them. Between
    // an answer and the next request a slot rests for a moment. That matters to answers of a moment: there as
    // many requests again wait at the engine.
    /// The most requests at once. Where neither is known, the engine queues requests itself, in its own
    /// order.
    fn limit(&self) -> u32 {
        let tracked = self.run.as_ref().is_some_and(|run| run.occupancy.is_some());
        let known = self.run.as_ref().and_then(|run| run.slots).or(self.spec.slots);
        let is_quick = self.answer_time.is_some_and(|usual| !usual.is_zero() && usual < QUICK);
        let slots = known.map(|slots| if is_quick { slots.saturating_mul(2) } else { slots });
        // The tokens of a tracked run say which of its slots are taken.
        self.spec.concurrency.or(slots.filter(|_| !tracked)).unwrap_or(u32::MAX)
    }

    /// The run, if its depth is tracked.
    pub(crate) fn tracked(&self) -> Option<(&RunState, &Occupancy)> {
        let run = self.run.as_ref()?;
        Some((run, run.occupancy.as_ref()?))
    }

    pub(crate) fn occupancy_mut(&mut self) -> Option<&mut Occupancy> {
        self.run.as_mut()?.occupancy.as_mut()
    }

    /// The end of an idle run's time to live. A run is in use while a request waits for its depth or for
    /// memory that it lent.
    pub(crate) fn idle_end(&self) -> Option<Moment> {
        let run = self.run.as_ref().filter(|_| self.line.is_empty())?;
        Some(run.idle_since()? + self.time_to_live()?)
    }

    /// Time since which a loaded run has had no request, even one that was ordered to stop since.
    pub(crate) fn unused_since(&self) -> Option<Moment> {
        let run = self.run.as_ref().filter(|run| run.in_flight() == 0)?;
        // The model may have been used last before this run was loaded.
        Some(run.ready_at?.max(self.last_used.unwrap_or(Moment::START)))
    }

    /// The same of a run that may be busy, as if it became idle now.
    pub(crate) fn run_end_if_idle(&self, now: Moment) -> Option<Moment> {
        self.run.as_ref()?;
        self.idle_end().or_else(|| Some(now + self.time_to_live()?))
    }

    /// Idle time after which the run ends; `None` for a run that stays.
    pub(crate) fn time_to_live(&self) -> Option<Duration> {
        let of_run = self.run.as_ref().and_then(|run| run.keep);
        // A pinned model never expires, whatever its time to live says.
        of_run.or(self.spec.ttl).filter(|ttl| *ttl < Duration::MAX && !self.is_pinned())
    }
}
