//! Logs one line when a request starts to wait, and one line when it is finished.
//!
//! Requests in between are available as a list.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use plimsoll_base::{IdMap, Order, counted};
use plimsoll_scheduler::ModelId;
use serde_json::{Value, json};
use tracing::Level;

use super::run::EngineRun;
use super::state::SchedulerState;
use super::traces::{TracedRequest, Traces};
use super::{Runtime, in_a_line};
use plimsoll_route::{AnswerTokens, RouteOptions, TraceParent};

/// Cause of a wait while the model's files and its engine are checked.
const CHECK: &str = "check";

/// Requests since the start: the ended ones by number, and the open ones.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    answered: Cell<u64>,
    failed: Cell<u64>,
    /// Requests whose clients left.
    abandoned: Cell<u64>,
    /// Requests that have not ended, by number.
    open: RefCell<IdMap<u64, Rc<OpenRequest>>>,
    arrivals: Cell<u64>,
    /// Memory of the last line, for the next one.
    line: RefCell<String>,
}

/// A request that waits or is being answered.
#[derive(Debug)]
struct OpenRequest {
    model: ModelId,
    arrived: Instant,
    /// Time until it was sent to its engine, and the start of that engine if it was waited for.
    sent: Cell<Option<(Duration, Option<Instant>)>>,
}

impl RequestCounts {
    /// Answered, failed and abandoned requests.
    pub(crate) fn get(&self) -> [u64; 3] {
        [&self.answered, &self.failed, &self.abandoned].map(Cell::get)
    }
}

impl fmt::Display for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [answered, failed, abandoned] = self.get();
        let answered = counted(answered, "request");
        write!(f, "{answered} answered, {failed} failed, {abandoned} abandoned by their clients")
    }
}

/// One request; dropping the record writes its line.
pub(super) struct RequestRecord {
    runtime: Rc<Runtime>,
    id: u64,
    open: Rc<OpenRequest>,
    /// Cause of its wait, as last seen, and whether a line named one.
    cause: Option<&'static str>,
    reported: bool,
    status: Option<StatusCode>,
    parent: Option<TraceParent>,
    tokens: Option<AnswerTokens>,
    /// The first piece of its event stream.
    first: Option<Instant>,
    /// End of its answer.
    ended: Option<Instant>,
    outcome: RequestOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestOutcome {
    Abandoned,
    Answered,
    Broken,
}

impl RequestRecord {
    pub(super) fn begin(runtime: &Rc<Runtime>, model: ModelId, options: &RouteOptions) -> Self {
        let counts = &runtime.reports.counts;
        let id = counts.arrivals.get() + 1;
        counts.arrivals.set(id);
        let arrived = options.requested.unwrap_or_else(Instant::now);
        let open = Rc::new(OpenRequest { model, arrived, sent: Cell::default() });
        counts.open.borrow_mut().insert(id, Rc::clone(&open));
        Self {
            runtime: Rc::clone(runtime),
            id,
            open,
            cause: None,
            reported: false,
            status: None,
            parent: options.parent,
            tokens: None,
            first: None,
            ended: None,
            // A client may leave at any time; every other end is logged.
            outcome: RequestOutcome::Abandoned,
        }
    }

    pub(super) fn arrived(&self) -> Instant {
        self.open.arrived
    }

    /// True if the line will be written.
    pub(super) fn is_logged() -> bool {
        tracing::enabled!(Level::INFO)
    }

    /// Logs the cause of the wait, unless it was logged before.
    pub(super) fn waits(&mut self) {
        let state = &self.runtime.state;
        let scheduler = state.scheduler.borrow();
        let OpenRequest { model, arrived, .. } = *self.open;
        // Asked again and again for every request that waits, so the reason is made only where it is logged.
        let cause = scheduler.wait_cause(model);
        if cause == self.cause && self.reported {
            return;
        }
        // Every load begins with a check of some milliseconds; only a long one is worth a line.
        if self.cause.is_none() && cause == Some(CHECK) {
            self.cause = cause;
            return;
        }
        let Some((cause, reason)) = scheduler.state().wait_reason(model) else { return };
        if self.cause.replace(cause) != Some(cause) || !self.reported {
            self.reported = true;
            let (name, waited_ms) = (&state.entry(model).name, millis(arrived.elapsed()));
            tracing::info!(model = name, waits_for = cause, waited_ms, "wait {name}: {}", in_a_line(&reason));
        }
    }

    /// The request did not wait.
    pub(super) fn sent_at_once(&mut self) {
        self.open.sent.set(Some((Duration::ZERO, None)));
    }

    pub(super) fn sent_to(&mut self, run: &EngineRun) {
        self.open.sent.set(Some((self.open.arrived.elapsed(), run.start_after(self.open.arrived))));
    }

    pub(super) fn status(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// A refusal is complete with its status.
    pub(super) fn refused(&mut self, status: StatusCode) {
        (self.status, self.outcome) = (Some(status), RequestOutcome::Answered);
    }

    /// The first piece of an event stream is there.
    pub(super) fn streams(&mut self) {
        self.first = Some(Instant::now());
    }

    pub(super) fn finished(&mut self, tokens: Option<AnswerTokens>, now: Instant) {
        (self.tokens, self.ended, self.outcome) = (tokens, Some(now), RequestOutcome::Answered);
        let first = self.first.map(|first| (first - self.open.arrived, now - first));
        self.runtime.state.statuses.with(self.open.model, |status| status.answers.add(tokens, first));
    }

    pub(super) fn broke(&mut self) {
        self.outcome = RequestOutcome::Broken;
    }

    /// Traces the request, unless its client says that it does not record the trace.
    fn trace(&self, traces: &Traces) {
        if self.parent.is_some_and(|parent| !parent.is_sampled) {
            return;
        }
        let OpenRequest { model, arrived, .. } = *self.open;
        let sent = self.open.sent.get();
        traces.send(TracedRequest {
            parent: self.parent,
            model: self.runtime.state.entry(model).name.clone(),
            arrived,
            loaded: sent.and_then(|(_, loaded)| loaded),
            sent: sent.map(|(waited, _)| arrived + waited),
            first: self.first,
            ended: self.ended.unwrap_or_else(Instant::now),
            waits_for: self.cause,
            status: self.status.map(|status| status.as_u16()),
            tokens: self.tokens,
            fault: match self.outcome {
                RequestOutcome::Answered => None,
                RequestOutcome::Abandoned => Some("abandoned"),
                RequestOutcome::Broken => Some("broken"),
            },
        });
    }

    /// Writes the message of its line, put together by hand: each piece that `format!` writes costs a call.
    fn write(&self, line: &mut String, name: &str, took: Duration, (waited, loaded): (Duration, bool)) {
        let mut digits = itoa::Buffer::new();
        line.extend(["request ", name, ": "]);
        if let Some(status) = &self.status {
            line.extend([status.as_str(), " "]);
        }
        line.extend(["in ", digits.format(millis(took)), " ms"]);
        if self.cause.is_some() || loaded {
            let load = if loaded { " with a load" } else { "" };
            line.extend([", waited ", digits.format(millis(waited)), " ms", load]);
        }
        if let Some(tokens) = self.tokens {
            line.extend([", ", digits.format(tokens.total), " tokens"]);
        }
        line.push_str(match self.outcome {
            RequestOutcome::Answered => "",
            RequestOutcome::Abandoned => ", abandoned by the client",
            RequestOutcome::Broken => ", broken off by the engine",
        });
    }

    fn count(&self) {
        let is_failure = self.status.is_some_and(|status| status.as_u16() >= 400);
        let counts = &self.runtime.reports.counts;
        let count = match self.outcome {
            RequestOutcome::Answered if !is_failure => &counts.answered,
            RequestOutcome::Abandoned => &counts.abandoned,
            _ => &counts.failed,
        };
        count.set(count.get() + 1);
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.count();
        self.runtime.reports.counts.open.borrow_mut().remove(&self.id);
        if let Some(traces) = &self.runtime.reports.traces {
            self.trace(traces);
        }
        if !Self::is_logged() {
            return;
        }
        let entry = self.runtime.state.entry(self.open.model);
        // The clock was read just now where the answer ended.
        let took = self.ended.unwrap_or_else(Instant::now) - self.open.arrived;
        // A request that was never sent has waited all its time.
        let (waited, loaded) = self.open.sent.get().unwrap_or((took, None));
        let loaded = loaded.is_some();
        let mut line = self.runtime.reports.counts.line.take();
        self.write(&mut line, &entry.name, took, (waited, loaded));
        tracing::info!(
            model = entry.name,
            status = self.status.map(|status| u64::from(status.as_u16())),
            complete = self.outcome == RequestOutcome::Answered,
            waited_ms = millis(waited),
            loaded,
            tokens = self.tokens.map(|tokens| tokens.total),
            ms = millis(took),
            "{line}"
        );
        line.clear();
        self.runtime.reports.counts.line.replace(line);
    }
}

impl RequestCounts {
    /// The requests that wait or are being answered, the oldest first, with the times on the clock of the
    /// snapshot.
    pub(super) fn open_requests(&self, state: &SchedulerState) -> Value {
        let (scheduler, registry, start) =
            (state.scheduler.borrow(), state.registry.borrow(), state.up_since());
        let open = self.open.borrow();
        let mut open: Vec<_> = open.iter().collect();
        open.order_by_key(|(id, _)| **id);
        let list = open.into_iter().map(|(id, open)| {
            let arrived = open.arrived.saturating_duration_since(start);
            let sent = open.sent.get().map(|(waited, _)| (arrived + waited).as_secs_f64());
            let waits = || Some(in_a_line(&scheduler.state().wait_reason(open.model)?.1));
            json!({
                "id": id,
                "model": registry.entry(open.model).name,
                "arrived": arrived.as_secs_f64(),
                "sent": sent,
                "waits_for": if sent.is_none() { waits() } else { None },
            })
        });
        list.collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
