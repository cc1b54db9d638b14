//! Log of requests: a line when one starts to wait, and a line when it ends. Those in between are listed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use plimsoll_scheduler::ModelId;
use serde_json::{Value, json};
use tracing::Level;

use super::run::EngineRun;
use super::{Runtime, in_a_line};

/// Cause of a wait while the model's files and its engine are checked.
const CHECK: &str = "check";

/// Requests since the start: the ended ones by number, and the open ones.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    answered: Cell<u64>,
    failed: Cell<u64>,
    /// Requests whose clients left.
    abandoned: Cell<u64>,
    /// Requests that have not ended, by the order of their arrival.
    open: RefCell<BTreeMap<u64, Rc<OpenRequest>>>,
    arrivals: Cell<u64>,
}

/// A request that waits or is being answered.
#[derive(Debug)]
struct OpenRequest {
    model: ModelId,
    arrived: Instant,
    /// Time until it was sent to its engine, and whether a load was part of it.
    sent: Cell<Option<(Duration, bool)>>,
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
        write!(f, "{answered} requests answered, {failed} failed, {abandoned} abandoned by their clients")
    }
}

/// One request; dropping the record writes its line.
pub(super) struct RequestRecord {
    runtime: Rc<Runtime>,
    id: u64,
    open: Rc<OpenRequest>,
    /// Cause of its wait, as last seen, and whether a line told one.
    cause: Option<&'static str>,
    told: bool,
    status: Option<StatusCode>,
    tokens: Option<u64>,
    outcome: RequestOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestOutcome {
    Abandoned,
    Answered,
    Broken,
}

impl RequestRecord {
    pub(super) fn begin(runtime: &Rc<Runtime>, model: ModelId) -> Self {
        let counts = &runtime.counts;
        let id = counts.arrivals.get() + 1;
        counts.arrivals.set(id);
        let open = Rc::new(OpenRequest { model, arrived: Instant::now(), sent: Cell::default() });
        counts.open.borrow_mut().insert(id, Rc::clone(&open));
        Self {
            runtime: Rc::clone(runtime),
            id,
            open,
            cause: None,
            told: false,
            status: None,
            tokens: None,
            // A client may leave at any time; every other end is told.
            outcome: RequestOutcome::Abandoned,
        }
    }

    pub(super) fn arrived(&self) -> Instant {
        self.open.arrived
    }

    /// True if the line will be written, so that its figures are worth finding.
    pub(super) fn is_logged() -> bool {
        tracing::enabled!(Level::INFO)
    }

    /// Logs the cause of the wait, unless it was told before.
    pub(super) fn waits(&mut self) {
        let state = self.runtime.state.borrow();
        let OpenRequest { model, arrived, .. } = *self.open;
        // Asked again and again for every request that waits, so the reason is made only where it is told.
        let cause = state.scheduler.wait_cause(model);
        if cause == self.cause && self.told {
            return;
        }
        // Every load begins with a check of some milliseconds; only a long one is worth a line.
        if self.cause.is_none() && cause == Some(CHECK) {
            self.cause = cause;
            return;
        }
        let Some((cause, reason)) = state.scheduler.wait_reason(model) else { return };
        if self.cause.replace(cause) != Some(cause) || !self.told {
            self.told = true;
            let (name, waited_ms) = (&state.registry.entry(model).name, millis(arrived.elapsed()));
            tracing::info!(model = name, waits_for = cause, waited_ms, "wait {name}: {}", in_a_line(&reason));
        }
    }

    pub(super) fn sent_to(&mut self, run: &EngineRun) {
        self.open.sent.set(Some((self.open.arrived.elapsed(), run.began_after(self.open.arrived))));
    }

    pub(super) fn status(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// A refusal is complete with its status.
    pub(super) fn refused(&mut self, status: StatusCode) {
        (self.status, self.outcome) = (Some(status), RequestOutcome::Answered);
    }

    pub(super) fn finished(&mut self, tokens: Option<u64>) {
        (self.tokens, self.outcome) = (tokens, RequestOutcome::Answered);
    }

    pub(super) fn broke(&mut self) {
        self.outcome = RequestOutcome::Broken;
    }

    fn count(&self) {
        let is_failure = self.status.is_some_and(|status| status.as_u16() >= 400);
        let counts = &self.runtime.counts;
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
        self.runtime.counts.open.borrow_mut().remove(&self.id);
        if !Self::is_logged() {
            return;
        }
        let entry = self.runtime.entry(self.open.model);
        let took = self.open.arrived.elapsed();
        // A request that was never sent has waited all its time.
        let (waited, loaded) = self.open.sent.get().unwrap_or((took, false));
        tracing::info!(
            model = entry.name,
            status = self.status.map(|status| u64::from(status.as_u16())),
            complete = self.outcome == RequestOutcome::Answered,
            waited_ms = millis(waited),
            loaded,
            tokens = self.tokens,
            ms = millis(took),
            "request {}: {}",
            entry.name,
            EndedRequest { record: self, took, waited, loaded }
        );
    }
}

impl Runtime {
    /// The requests that wait or are being answered, the oldest first, with the times on the clock of the snapshot.
    pub(super) fn open_requests(&self) -> Value {
        let state = self.state.borrow();
        let start = self.up_since();
        let open = self.counts.open.borrow();
        let list = open.iter().map(|(id, open)| {
            let arrived = open.arrived.saturating_duration_since(start);
            let sent = open.sent.get().map(|(waited, _)| (arrived + waited).as_secs_f64());
            let waits = || Some(in_a_line(&state.scheduler.wait_reason(open.model)?.1));
            json!({
                "id": id,
                "model": state.registry.entry(open.model).name,
                "arrived": arrived.as_secs_f64(),
                "sent": sent,
                "waits_for": if sent.is_none() { waits() } else { None },
            })
        });
        list.collect()
    }
}

struct EndedRequest<'a> {
    record: &'a RequestRecord,
    took: Duration,
    waited: Duration,
    loaded: bool,
}

impl fmt::Display for EndedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.record;
        if let Some(status) = record.status {
            write!(f, "{} ", status.as_u16())?;
        }
        write!(f, "in {} ms", millis(self.took))?;
        if record.cause.is_some() || self.loaded {
            let load = if self.loaded { " with a load" } else { "" };
            write!(f, ", waited {} ms{load}", millis(self.waited))?;
        }
        if let Some(tokens) = record.tokens {
            write!(f, ", {tokens} tokens")?;
        }
        f.write_str(match record.outcome {
            RequestOutcome::Answered => "",
            RequestOutcome::Abandoned => ", abandoned by the client",
            RequestOutcome::Broken => ", broken off by the engine",
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
