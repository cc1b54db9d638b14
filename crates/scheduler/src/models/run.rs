//! Holds the state of one engine process: its phase, requests in flight, tokens in use and health.

use std::time::Duration;

use plimsoll_base::{Bytes, CardId, ModelNeed, Placement, Reason, RunId, Share};

use crate::effect::ModelState;
use crate::load_check::LoadCheck;
use crate::occupancy::Occupancy;
use crate::queue::RequestState;
use crate::time::{Moment, RequestId};

/// A load that shows progress only by log output is ended after this many load timeouts.
const TALK_LIMIT: u32 = 10;
/// Time between two probes of a run.
const PROBE_PAUSE: Duration = Duration::from_secs(5);
/// Clients that gave up without a byte.
const CLIENTS: u32 = 3;
/// Time without a byte after which a run is probed: of so many clients, and of one. A probe takes a slot of
/// the engine, whose cache is then lost, so clients that leave early do not start one.
const SILENCE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(8));

#[derive(Clone, Debug, Default)]
pub(crate) struct RunState {
    pub(crate) id: RunId,
    pub(crate) phase: RunPhase,
    pub(crate) need: ModelNeed,
    pub(crate) placement: Placement,
    in_flight: u32,
    /// Those of them that take no slot.
    slotless: u32,
    /// Requests that were sent to it since it was started.
    sent: u32,
    /// Depth of the run, where it is tracked.
    pub(crate) occupancy: Option<Occupancy>,
    /// Why it is not.
    pub(crate) depth_unwatched: Option<String>,
    /// The driver has yet to tell how its memory grows.
    pub(crate) awaits_growth: bool,
    /// Order of use over all runs.
    pub(crate) stamp: u64,
    /// The time at which it was sent a request last.
    pub(crate) last_sent: Moment,
    pub(crate) draining: Option<Drain>,
    /// The arithmetic by which it drains for another model, where it was in use.
    pub(crate) swap_sum: Option<Reason>,
    /// Why it leaves for good, where that is no other process's need.
    pub(crate) parts_for: Option<PartingCause>,
    /// Time to live that a client set for this run.
    pub(crate) keep: Option<Duration>,
    /// Time since which the run counts as dead: it gets no more requests, and is killed if it does not end by
    /// itself.
    pub(crate) suspect: Option<Moment>,
    pub(crate) sleep: RunSleep,
    /// Its claim when it fell asleep, which it needs to wake.
    pub(crate) needs_awake: Vec<Share>,
    /// Set if the run was killed for its own failure.
    pub(crate) killed_for: Option<Reason>,
    /// Port that its engine always listens on.
    pub(crate) port: Option<u16>,
    /// Its engine measures free memory while it loads.
    pub(crate) measures_free: bool,
    pub(crate) started: Moment,
    pub(crate) ready_at: Option<Moment>,
    /// The cards when it was started.
    pub(crate) start: Vec<StartFigure>,
    pub(crate) load_check: Vec<LoadCheck>,
    /// Requests that wait for the result of a health check.
    unanswered: Vec<RequestId>,
    /// A failed request starts a probe from this time on: never while one is under way.
    probes_from: Moment,
    /// Until then, a suspect has the run alone: the one with this place of dispatch.
    pub(crate) alone: Option<(Moment, u64)>,
    /// Requests that it has answered.
    pub(crate) answered: u32,
    /// Time of its last sign of work, and of the last probe.
    quiet_since: Moment,
    /// Clients that gave up without a byte since the last answer, and the dispatch of the first of their
    /// requests.
    gave_up: (u32, Option<Moment>),
    /// It takes requests beyond the most until these have ended: those up to this place of dispatch, and
    /// their number.
    overtime: Option<(u64, u32)>,
    /// Time that the load cost other models.
    pub(crate) displaced: Duration,
    /// Slots that the engine says it has.
    pub(crate) slots: Option<u32>,
}

/// Memory figures of one card when the run was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartFigure {
    pub(crate) card: CardId,
    pub(crate) claim: Bytes,
    pub(crate) free: Bytes,
    pub(crate) foreign: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunPhase {
    Loading {
        /// Killed then, unless it makes progress.
        until: Moment,
        /// Killed then, if its only progress is output.
        latest: Moment,
    },
    Ready {
        idle_since: Moment,
    },
    Stopping {
        until: Moment,
    },
}

impl Default for RunPhase {
    fn default() -> Self {
        Self::Loading { until: Moment::NEVER, latest: Moment::NEVER }
    }
}

/// Sleep of an idle engine that has freed its memory for the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RunSleep {
    #[default]
    Awake,
    /// Its claim stands, and may be lent.
    Asleep,
    /// Another process has memory of its claim, so that the next request may not wake it.
    Lent,
}

/// Cause of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    /// Stopping for another model; cancelled if that model no longer needs it.
    Evict,
    Leave,
}

// DECISION: the cause is kept from the decision on. A stop may come minutes later, and by then a new time to
// live or a new order to load the model would make another cause look like it.
/// Cause for which a run leaves for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartingCause {
    /// An operator unloads the model.
    Hand,
    /// It was idle for its time to live.
    Idle {
        ttl: Duration,
    },
    /// It was sent as many requests as its engine may have.
    Served {
        most: u32,
    },
    Reconfigured,
    Unconfigured,
    /// The next request needs the memory of its idle slots too.
    Afresh,
    /// Pinned models have what it freed when it fell asleep.
    Lent,
}

impl RunState {
    pub(crate) fn new(id: RunId, need: ModelNeed, placement: Placement) -> Self {
        Self { id, need, placement, ..Self::default() }
    }

    pub(crate) fn state(&self) -> ModelState {
        match self.phase {
            RunPhase::Loading { .. } => ModelState::Loading,
            // A suspect run is shown like a draining one: it takes no new requests.
            RunPhase::Ready { .. } if self.draining.is_some() || self.suspect.is_some() => {
                ModelState::Draining
            }
            RunPhase::Ready { .. } => ModelState::Ready,
            RunPhase::Stopping { .. } => ModelState::Stopping,
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// One more request is in flight. After `most` of them the run leaves.
    pub(crate) fn send(&mut self, now: Moment, stamp: u64, most: Option<u32>, slotless: bool) {
        self.in_flight += 1;
        self.slotless += u32::from(slotless);
        (self.last_sent, self.stamp) = (now, stamp);
        // The request wakes the engine, which then takes its whole claim.
        self.sleep = RunSleep::Awake;
        self.sent = self.sent.saturating_add(1);
        if let Some(most) = most.filter(|most| self.sent >= *most && self.overtime.is_none()) {
            self.part(PartingCause::Served { most });
        }
    }

    /// True until it is sent its first request.
    pub(crate) fn is_unused(&self) -> bool {
        self.sent == 0
    }

    /// True if it has had its requests and waits for the end of the last answers, for the first time.
    pub(crate) fn has_served(&self) -> bool {
        matches!(self.parts_for, Some(PartingCause::Served { .. }))
            && self.is_ready()
            && self.draining == Some(Drain::Leave)
            && self.in_flight > 0
    }

    /// Takes requests again, until those have ended that it has now; `last` is the place of the last
    /// dispatch.
    pub(crate) fn work_overtime(&mut self, last: u64) {
        (self.overtime, self.draining) = (Some((last, self.in_flight)), None);
    }

    /// Lets it go for good, unless it was ordered to stop already. The first cause stands.
    pub(crate) fn part(&mut self, cause: PartingCause) {
        if !self.is_stopping() {
            self.draining = Some(Drain::Leave);
            self.parts_for.get_or_insert(cause);
        }
    }

    /// One request fewer is in flight.
    pub(crate) fn land(&mut self, request: &RequestState) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.slotless = self.slotless.saturating_sub(u32::from(request.slotless));
        self.alone.take_if(|(_, sent)| *sent == request.order);
        if let Some((last, before)) = &mut self.overtime
            && request.order <= *last
        {
            *before = before.saturating_sub(1);
            if *before == 0 {
                (self.overtime, self.draining) = (None, Some(Drain::Leave));
            }
        }
    }

    pub(crate) fn is_loading(&self) -> bool {
        matches!(self.phase, RunPhase::Loading { .. })
    }

    /// True while its start measures free memory.
    pub(crate) fn measures_now(&self) -> bool {
        self.is_loading() && self.measures_free
    }

    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self.phase, RunPhase::Stopping { .. })
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.phase, RunPhase::Ready { .. })
    }

    pub(crate) fn takes_requests(&self) -> bool {
        self.is_ready() && self.draining.is_none() && self.suspect.is_none()
    }

    /// True if another request may be sent to it, of at most `limit` at once.
    pub(crate) fn is_open(&self, limit: u32) -> bool {
        self.takes_any() && self.in_flight - self.slotless < limit && self.alone.is_none()
    }

    /// True if a request may be sent to it that takes no slot.
    pub(crate) fn takes_any(&self) -> bool {
        self.takes_requests() && self.sleep != RunSleep::Lent
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.takes_requests() && self.in_flight == 0
    }

    /// True for an idle run that holds less than its claim until its next request.
    pub(crate) fn is_asleep(&self) -> bool {
        self.sleep != RunSleep::Awake && self.is_idle()
    }

    /// The time since which it has been idle.
    pub(crate) fn idle_since(&self) -> Option<Moment> {
        match self.phase {
            RunPhase::Ready { idle_since, .. } if self.is_idle() => Some(idle_since),
            _ => None,
        }
    }

    /// True if the run is ending or was ordered to end, and this cannot be reversed.
    pub(crate) fn leaves(&self) -> bool {
        self.is_stopping() || self.draining == Some(Drain::Leave) || self.suspect.is_some()
    }

    /// Raises the placement's share on a card to memory that was granted or measured.
    pub(crate) fn grow_placement(&mut self, card: &CardId, bytes: Bytes) {
        let mut shares = self.placement.shares.iter_mut();
        if let Some(share) = shares.find(|share| share.card == *card) {
            share.bytes = share.bytes.max(bytes);
        }
    }

    pub(crate) fn loading(now: Moment, timeout: Duration) -> RunPhase {
        RunPhase::Loading { until: now + timeout, latest: now + timeout.saturating_mul(TALK_LIMIT) }
    }

    /// Takes a sign of life of a load.
    pub(crate) fn progress(&mut self, now: Moment, timeout: Duration, measured: bool) {
        let RunPhase::Loading { until, latest } = &mut self.phase else { return };
        if measured {
            self.phase = Self::loading(now, timeout);
        } else {
            // Output proves nothing: an engine that prints "waiting" once a second would hold its memory for
            // ever.
            *until = (now + timeout).min(*latest);
        }
    }

    /// Takes a request that got no answer. Returns true if a health check has to be started.
    pub(crate) fn unanswered(&mut self, request: RequestId) -> bool {
        self.unanswered.push(request);
        // One check answers for all requests that wait for it.
        self.unanswered.len() == 1
    }

    /// Begins a probe; false if none may begin now.
    pub(crate) fn begin_probe(&mut self, now: Moment) -> bool {
        let begins = self.probes_from <= now && self.is_ready() && self.suspect.is_none();
        if begins {
            self.probes_from = Moment::NEVER;
        }
        begins
    }

    pub(crate) fn end_probe(&mut self, now: Moment) {
        self.probes_from = now + PROBE_PAUSE;
        self.shows_work(now);
    }

    /// Takes an answer, or another sign that it works.
    pub(crate) fn shows_work(&mut self, now: Moment) {
        (self.quiet_since, self.gave_up) = (now, (0, None));
    }

    /// Takes a client that gave up without a byte. True if it is time to probe the run.
    pub(crate) fn gives_up(&mut self, now: Moment, sent: Moment) -> bool {
        let (clients, first) = self.gave_up;
        let first = first.map_or(sent, |first| first.min(sent));
        self.gave_up = (clients + 1, Some(first));
        clients + 1 >= CLIENTS && now.since(first) >= SILENCE.0 || now.since(first) >= SILENCE.1
    }

    /// The time at which a run that others wait for is probed, because it has shown no work.
    pub(crate) fn probe_due(&self) -> Option<Moment> {
        let waited_for = self.is_ready() && self.draining.is_some() && self.suspect.is_none();
        let due =
            (waited_for && self.in_flight > 0).then(|| self.probes_from.max(self.quiet_since + SILENCE.1));
        due.filter(|due| *due != Moment::NEVER)
    }

    /// True while its health is checked, or after it has failed.
    pub(crate) fn is_checked(&self) -> bool {
        !self.unanswered.is_empty() || self.suspect.is_some()
    }

    /// Requests that waited for a health check, which has a result now.
    pub(crate) fn take_unanswered(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.unanswered)
    }
}
