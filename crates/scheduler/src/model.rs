//! What the scheduler knows of a model, of its run, and of a request.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_base::{Bytes, Demand, Placement, Reason, RunId};

use super::depth::Depth;
use super::effect::State;
use super::moment::{ModelId, Moment, RequestId};
use super::occupancy::Occupancy;
use super::retry::Record;
use super::spec::ModelSpec;
use crate::place::Answers;

#[derive(Debug)]
pub(super) struct Model {
    pub(super) name: Arc<str>,
    pub(super) spec: ModelSpec,
    pub(super) seeking: Seeking,
    pub(super) run: Option<Run>,
    /// The next request goes deeper than the run's claim covers.
    pub(super) deep: Option<Deep>,
    pub(super) queue: VecDeque<RequestId>,
    /// Somebody wants it loaded, with or without a request.
    pub(super) load_wanted: Option<Moment>,
    pub(super) preload: bool,
    /// Gone from the configuration; forgotten once its run has ended.
    pub(super) removed: bool,
    pub(super) last_used: Option<Moment>,
    /// Requests whose prompt was counted to be longer than a slot: the engine refuses them by itself.
    pub(super) overflows: u64,
    pub(super) record: Record,
    /// What the owner was last told.
    pub(super) shown: State,
}

/// How far a model without a run is on the way to one.
#[derive(Debug)]
pub(super) enum Seeking {
    Nothing,
    Survey {
        /// The configuration changed under the survey: its answer says nothing.
        stale: bool,
    },
    Room(Room),
}

/// A model that is known to load and waits for memory.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) demand: Arc<dyn Demand>,
    pub(super) answers: Answers,
    /// Runs that go for it.
    pub(super) victims: Vec<RunId>,
    /// What it takes at the place for which they go.
    pub(super) needs: Bytes,
    /// What it would take with nobody else there, where turns go by that.
    pub(super) size: Bytes,
    /// Since when it has waited for room.
    pub(super) since: Moment,
    /// Runs whose memory must be back before it starts, whether it would fit or not.
    pub(super) after: Vec<RunId>,
    pub(super) asking: Asking,
}

/// Whether neighbours were asked for what they hold idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Before,
    Now,
    Over,
}

/// What a run needs beside what it has, for its next request.
#[derive(Debug, Default)]
pub(super) struct Deep {
    /// Runs that go for it.
    pub(super) victims: Vec<RunId>,
    pub(super) needs: Bytes,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) phase: Phase,
    pub(super) demand: Arc<dyn Demand>,
    pub(super) placement: Placement,
    pub(super) in_flight: u32,
    /// How deep it is; or, in words, why nobody watches that.
    pub(super) occupancy: Result<Occupancy, String>,
    /// Order of use over all runs.
    pub(super) stamp: u64,
    /// Requests that were queued when it became ready and have not been sent to it yet.
    pub(super) owed: usize,
    pub(super) draining: Option<Drain>,
    /// A request bounced off it at this time: it gets no more, and is killed if it does not end by itself.
    pub(super) suspect: Option<Moment>,
    /// It goes so that what its idle slots keep goes too.
    pub(super) afresh: bool,
    /// Why it was killed, where that was for a failure of its own.
    pub(super) killed_for: Option<Reason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Loading { until: Moment },
    Ready { since: Moment, idle_since: Moment },
    Stopping { until: Moment },
}

/// Why a run drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// For a newcomer; called off if nobody needs it any more.
    Evict,
    Leave,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) model: ModelId,
    pub(super) arrived: Moment,
    pub(super) deadline: Moment,
    pub(super) bounced: bool,
    pub(super) depth: Option<Depth>,
    /// The owner has been asked for the depth.
    pub(super) sounding: bool,
    /// None while it is queued.
    pub(super) run: Option<RunId>,
}

impl Model {
    pub(super) fn new(spec: ModelSpec) -> Self {
        Self {
            name: spec.name.as_str().into(),
            preload: spec.preload,
            spec,
            seeking: Seeking::Nothing,
            run: None,
            deep: None,
            queue: VecDeque::new(),
            load_wanted: None,
            removed: false,
            last_used: None,
            overflows: 0,
            record: Record::default(),
            shown: State::Unloaded,
        }
    }

    /// Somebody waits for it to run.
    pub(super) fn wanted(&self) -> bool {
        !self.queue.is_empty() || self.load_wanted.is_some() || self.preload
    }

    /// It may make others go: a preload alone may not.
    pub(super) fn pressing(&self) -> bool {
        !self.queue.is_empty() || self.load_wanted.is_some()
    }

    pub(super) fn state(&self) -> State {
        match (&self.run, &self.seeking) {
            (Some(run), _) => run.state(),
            (None, Seeking::Survey { .. } | Seeking::Room(_)) => State::Queued,
            (None, Seeking::Nothing) if self.record.failed => State::Failed,
            (None, Seeking::Nothing) => State::Unloaded,
        }
    }

    /// Runs that go for it, whether it is to start or to go deeper.
    pub(super) fn victims(&self) -> impl Iterator<Item = &RunId> {
        let room = match &self.seeking {
            Seeking::Room(room) => Some(room.victims.iter().chain(&room.after)),
            _ => None,
        };
        let deep = self.deep.iter().flat_map(|deep| &deep.victims);
        room.into_iter().flatten().chain(deep)
    }

    /// Returns the run if it is this one.
    pub(super) fn run_mut(&mut self, id: RunId) -> Option<&mut Run> {
        self.run.as_mut().filter(|run| run.id == id)
    }

    /// The run may be sent a request now.
    pub(super) fn open_run(&mut self) -> Option<&mut Run> {
        let limit = self.spec.concurrency.unwrap_or(u32::MAX);
        self.run
            .as_mut()
            .filter(|run| run.takes_requests() && run.in_flight < limit)
    }

    /// The run, if its depth is watched.
    pub(super) fn watched(&self) -> Option<(&Run, &Occupancy)> {
        let run = self.run.as_ref()?;
        Some((run, run.occupancy.as_ref().ok()?))
    }
}

impl Run {
    pub(super) fn state(&self) -> State {
        match self.phase {
            Phase::Loading { .. } => State::Loading,
            Phase::Ready { .. } if self.draining.is_some() || self.suspect.is_some() => State::Draining,
            Phase::Ready { .. } => State::Ready,
            Phase::Stopping { .. } => State::Stopping,
        }
    }

    pub(super) fn takes_requests(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. }) && self.draining.is_none() && self.suspect.is_none()
    }

    /// It ends by itself or was told to, and nothing will call that off.
    pub(super) fn leaves(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
            || self.draining == Some(Drain::Leave)
            || self.suspect.is_some()
    }
}
