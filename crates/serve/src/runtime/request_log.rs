//! Log of requests: a line when one starts to wait, and a line when it ends.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use plimsoll_scheduler::ModelId;
use tracing::Level;

use super::run::EngineRun;
use super::{Runtime, in_a_line};

/// Requests that have ended since the start.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    answered: Cell<u64>,
    failed: Cell<u64>,
    /// Requests whose clients left.
    abandoned: Cell<u64>,
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
    model: ModelId,
    arrived: Instant,
    /// Time until it was sent to its engine, and whether a load was part of it.
    sent: Option<(Duration, bool)>,
    /// Cause of its wait, as last told.
    cause: Option<&'static str>,
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
        Self {
            runtime: Rc::clone(runtime),
            model,
            arrived: Instant::now(),
            sent: None,
            cause: None,
            status: None,
            tokens: None,
            // A client may leave at any time; every other end is told.
            outcome: RequestOutcome::Abandoned,
        }
    }

    /// True if the line will be written, so that its figures are worth finding.
    pub(super) fn is_logged() -> bool {
        tracing::enabled!(Level::INFO)
    }

    /// Logs the cause of the wait, unless it was told before.
    pub(super) fn waits(&mut self) {
        let state = self.runtime.state.borrow();
        let Some((cause, reason)) = state.scheduler.wait_reason(self.model, self.runtime.now()) else {
            return;
        };
        if self.cause.replace(cause) != Some(cause) {
            let (name, waited_ms) = (&state.registry.entry(self.model).name, millis(self.arrived.elapsed()));
            tracing::info!(model = name, waits_for = cause, waited_ms, "wait {name}: {}", in_a_line(&reason));
        }
    }

    pub(super) fn sent_to(&mut self, run: &EngineRun) {
        let waited = self.arrived.elapsed();
        self.sent = Some((waited, run.age() < waited));
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
        if !Self::is_logged() {
            return;
        }
        let entry = self.runtime.entry(self.model);
        let took = self.arrived.elapsed();
        // A request that was never sent has waited all its time.
        let (waited, loaded) = self.sent.unwrap_or((took, false));
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
