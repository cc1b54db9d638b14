//! Keeps the requests that have not ended, with their deadlines.
//!
//! A request is in one place: queued for its model, in flight at an engine, or held during a health check.

#[cfg(test)]
mod audit;
mod line;

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_base::{IdMap, Priority, RunId};

pub(crate) use self::line::RequestLine;
use self::line::{LineAge, LineTurn};
use super::depth::RequestDepth;
use super::event::RequestTraits;
use super::time::{ClientId, ModelId, Moment, RequestId};

/// The largest number of open requests is that of the last one to two spans of this length.
const LATELY: Duration = Duration::from_secs(10);

/// The most requests that were open at once in the current span of [`LATELY`] and in the one before. A client
/// has one open request or few, so that this bounds the clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeakConcurrency {
    span: Moment,
    most: [usize; 2],
}

impl PeakConcurrency {
    pub(crate) fn note(&mut self, now: Moment, open: usize) {
        let spans = now.since(self.span).as_millis() / LATELY.as_millis();
        if spans > 0 {
            (self.span, self.most) = (now, [0, if spans == 1 { self.most[0] } else { 0 }]);
        }
        self.most[0] = self.most[0].max(open);
    }

    pub(crate) fn lately(&self) -> usize {
        self.most[0].max(self.most[1])
    }
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestState {
    pub(crate) model: ModelId,
    pub(crate) client: ClientId,
    pub(crate) priority: Priority,
    pub(crate) arrived: Moment,
    pub(crate) deadline: Moment,
    /// The time at which it was sent to the run that has it.
    pub(crate) sent: Moment,
    /// A run that is well dropped it, or one that hung had it.
    pub(crate) bounced: bool,
    /// Place of its dispatch among all.
    pub(crate) order: u64,
    /// Engines that died under it.
    pub(crate) deaths: u32,
    /// Place of its first dispatch among all.
    pub(crate) first_order: u64,
    /// Suspicion against it: see [`crate::SchedulerEffect::Suspected`].
    pub(crate) kills: u32,
    /// The engine that had it last died of something else.
    pub(crate) excused: bool,
    /// The time since which it waits to be tried alone, because an engine died under it and it is likely the
    /// cause.
    pub(crate) suspect: Option<Moment>,
    /// It takes none of the engine's slots.
    pub(crate) slotless: bool,
    pub(crate) depth: Option<RequestDepth>,
    /// The driver was requested to determine the depth.
    pub(crate) measuring: bool,
    pub(crate) place: RequestPlace,
    /// Its key in the line of its model, while it is queued.
    turn: LineTurn,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestPlace {
    #[default]
    Queued,
    Sent(RunId),
    /// The run gave no answer; the request waits for the result of the run's health check.
    Unanswered(RunId),
}

impl RequestState {
    pub(crate) fn new(
        model: ModelId,
        client: ClientId,
        priority: Priority,
        (arrived, deadline): (Moment, Moment),
        traits: RequestTraits,
    ) -> Self {
        let RequestTraits { kills, slotless } = traits;
        let suspect = (kills > 0).then_some(arrived);
        let new = Self { model, client, priority, arrived, deadline, sent: arrived, ..Self::default() };
        Self { suspect, kills, slotless, ..new }
    }

    fn age(&self, id: RequestId) -> LineAge {
        LineAge { priority: self.priority, arrived: self.arrived, id, is_suspect: self.suspect.is_some() }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    requests: IdMap<RequestId, RequestState>,
    /// Deadlines of queued requests only.
    deadlines: BTreeSet<(Moment, RequestId)>,
    open: PeakConcurrency,
    /// Requests that were sent so far.
    count: u64,
}

impl Queue {
    pub(crate) fn get(&self, id: RequestId) -> Option<&RequestState> {
        self.requests.get(&id)
    }

    /// Records a request that is sent to a run without waiting.
    pub(crate) fn insert_sent(&mut self, id: RequestId, request: RequestState, run: RunId) {
        self.count += 1;
        let (place, order, sent) = (RequestPlace::Sent(run), self.count, request.arrived);
        self.insert(id, RequestState { place, sent, order, first_order: order, ..request });
    }

    fn insert(&mut self, id: RequestId, request: RequestState) {
        self.requests.insert(id, request);
        self.open.note(request.arrived, self.requests.len());
    }

    /// Requests that were open at once lately.
    pub(crate) fn open_at_most(&self) -> usize {
        self.open.lately()
    }

    /// Queues a request at the place that its line gives it. Its deadline counts from its arrival.
    pub(crate) fn push(
        &mut self,
        id: RequestId,
        request: RequestState,
        into_line: impl FnOnce(LineAge) -> LineTurn,
    ) {
        let turn = into_line(request.age(id));
        self.deadlines.insert((request.deadline, id));
        self.insert(id, RequestState { turn, place: RequestPlace::Queued, ..request });
    }

    /// Takes the suspicion off the requests of a line, which then wait as before.
    pub(crate) fn exonerate(&mut self, line: &mut RequestLine) {
        while let Some(id) = line.suspect() {
            let Some(request) = self.requests.get_mut(&id) else { return };
            line.remove(request.turn, request.age(id));
            (request.suspect, request.kills) = (None, 0);
            request.turn = line.push_front(request.age(id));
        }
    }

    /// Place of the last dispatch.
    pub(crate) fn last_sent(&self) -> u64 {
        self.count
    }

    /// The requests that a run has not answered.
    pub(crate) fn sent_to(&mut self, run: RunId) -> impl Iterator<Item = (RequestId, &mut RequestState)> {
        let all = self.requests.iter_mut().map(|(id, request)| (*id, request));
        all.filter(move |(_, request)| {
            matches!(request.place, RequestPlace::Sent(at) | RequestPlace::Unanswered(at) if at == run)
        })
    }

    /// Sends the front of the line to `run`.
    pub(crate) fn send_front(
        &mut self,
        line: &mut RequestLine,
        run: RunId,
        now: Moment,
    ) -> Option<RequestId> {
        let id = line.pop_front(|id| self.requests.get(&id).map(|request| request.age(id)))?;
        if let Some(request) = self.requests.get_mut(&id) {
            // From here on the engine decides how long it takes; the deadline is for waiting only.
            (request.place, request.sent) = (RequestPlace::Sent(run), now);
            self.count += 1;
            request.order = self.count;
            request.first_order = if request.first_order == 0 { self.count } else { request.first_order };
            // Sent while it was measured, because this run's memory does not grow. If the run drops it, its
            // depth may matter at the next one.
            request.measuring = false;
            self.deadlines.remove(&(request.deadline, id));
        }
        Some(id)
    }

    /// Holds a sent request until its run's health is known. Returns it, or None if it is not at a run.
    pub(crate) fn hold(&mut self, id: RequestId) -> Option<(RequestState, RunId)> {
        let request = self.requests.get_mut(&id)?;
        let RequestPlace::Sent(run) = request.place else { return None };
        request.place = RequestPlace::Unanswered(run);
        Some((*request, run))
    }

    /// Removes a request wherever it is; `line` is that of its model.
    pub(crate) fn remove(&mut self, line: Option<&mut RequestLine>, id: RequestId) -> Option<RequestState> {
        let request = self.requests.remove(&id)?;
        if request.place == RequestPlace::Queued {
            self.deadlines.remove(&(request.deadline, id));
            line.into_iter().for_each(|line| line.remove(request.turn, request.age(id)));
        }
        Some(request)
    }

    /// Removes all queued requests of a line.
    pub(crate) fn clear(&mut self, line: &mut RequestLine) -> Vec<RequestId> {
        let ids: Vec<RequestId> = line.iter().collect();
        *line = RequestLine::default();
        for id in &ids {
            if let Some(request) = self.requests.remove(id) {
                self.deadlines.remove(&(request.deadline, *id));
            }
        }
        ids
    }

    /// The queued request whose deadline passed first.
    pub(crate) fn expired(&self, now: Moment) -> Option<RequestId> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// Requests that wait in any line.
    pub(crate) fn queued(&self) -> usize {
        self.deadlines.len()
    }

    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Marks that the driver measures the request's depth.
    pub(crate) fn begin_measuring(&mut self, id: RequestId) -> bool {
        let request = self.requests.get_mut(&id);
        request.is_some_and(|request| !std::mem::replace(&mut request.measuring, true))
    }

    /// Takes a measured depth. Returns the request, or None if its depth was not being measured.
    pub(crate) fn depth_measured(
        &mut self,
        id: RequestId,
        depth: Option<RequestDepth>,
    ) -> Option<RequestState> {
        let request = self.requests.get_mut(&id).filter(|request| request.measuring)?;
        // A depth measured earlier is kept if the engine could not count now.
        request.measuring = false;
        request.depth = depth.or(request.depth);
        Some(*request)
    }

    /// Fixes the depth of a request whose engine does not count tokens, because it will not do so next time
    /// either.
    pub(crate) fn settle_depth(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.depth =
                Some(RequestDepth { exact: true, ..request.depth.unwrap_or(RequestDepth::UNKNOWN) });
        }
    }

    /// Forgets the depths of a line's requests: another engine may tokenise differently.
    pub(crate) fn forget_depths(&mut self, line: &RequestLine) {
        for id in line.iter() {
            if let Some(request) = self.requests.get_mut(&id) {
                request.depth = None;
            }
        }
    }

    /// Moves a queued request to the front.
    pub(crate) fn bring_forward(&mut self, line: &mut RequestLine, id: RequestId) {
        let request = self.requests.get_mut(&id).filter(|request| request.place == RequestPlace::Queued);
        if let Some(request) = request {
            line.remove(request.turn, request.age(id));
            request.turn = line.push_front(request.age(id));
        }
    }
}
