//! Lists failures since the daemon's start and before it, for displays and for the state file.

use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::kept::KeptFailure;
use super::marks::{FAILURES, Mark, MarkedFailure};
use super::{Board, SCHEMA};
use crate::Runtime;
use plimsoll_route::without_engine_words;
use plimsoll_task::spawn_blocking;

/// Time between two writes of the failures.
const KEPT_APART: Duration = Duration::from_secs(1);

/// Writes failures down as they come, for as long as the daemon lives.
pub(crate) async fn keep(runtime: Rc<Runtime>) {
    loop {
        runtime.board.failed.notified().await;
        let mut failures: Vec<_> = runtime.board.failures().into_iter().map(|(_, failure)| failure).collect();
        failures.drain(..failures.len().saturating_sub(FAILURES));
        let store = runtime.board.store.clone();
        if let Ok(Err(error)) = spawn_blocking(move || store.write(failures)).await {
            tracing::debug!("the list of failures could not be saved: {error}");
        }
        tokio::time::sleep(KEPT_APART).await;
    }
}

impl Board {
    /// All failures as JSON, with the lines of engines.
    pub(crate) fn failure_list(&self) -> Value {
        let failures = self.failures().into_iter().map(|(id, kept)| {
            let mut failure = json!(kept);
            failure["id"] = json!(id);
            failure
        });
        json!({ "failures": failures.collect::<Vec<_>>() })
    }

    /// The newest failure as a document of its own, without lines of engines: it leaves the machine.
    pub(super) fn failure_document(&self) -> String {
        let newest = self.marks.failures().pop();
        let named = newest.and_then(|mark| {
            let name = mark.model.map(|model| self.state.entry(model).name.clone());
            let mut mark = json!(mark);
            mark["name"] = json!(name);
            mark["time"] = json!(self.failures().last()?.1.time);
            Some(mark)
        });
        let document = json!({
            "schema": SCHEMA, "now": self.state.now(),
            "server": { "version": env!("CARGO_PKG_VERSION"), "started": self.state.started() },
            "marks": named.into_iter().collect::<Vec<_>>(),
        });
        without_engine_words(document).to_string()
    }

    /// The failures of earlier runs and of this one, the oldest first, each with its number; earlier ones
    /// have negative numbers.
    fn failures(&self) -> Vec<(i64, KeptFailure)> {
        let earlier = (1..).zip(&self.earlier).map(|(number, failure)| (-number, failure.clone()));
        let of_mark = |mark: Mark| {
            let MarkedFailure { id, times, reason, hints } = mark.failure?;
            Some((
                i64::try_from(id).ok()?,
                KeptFailure {
                    time: self.state.unix_time(mark.at),
                    kind: mark.kind.to_owned(),
                    name: mark.model.map(|model| self.state.entry(model).name.clone()),
                    times,
                    // Both are kept as their JSON says it.
                    reason: serde_json::from_value(json!(reason)).ok()?,
                    hints: serde_json::from_value(json!(hints)).unwrap_or_default(),
                },
            ))
        };
        earlier.chain(self.marks.failures().into_iter().filter_map(of_mark)).collect()
    }

    /// Marks of the failures of earlier runs, whose times lie before the daemon's start.
    pub(super) fn earlier_marks(&self) -> Vec<Value> {
        let start = i64::try_from(self.state.started()).unwrap_or(i64::MAX);
        let mark = |(number, kept): (i64, &KeptFailure)| {
            let at = i64::try_from(kept.time).unwrap_or(start).saturating_sub(start).min(0);
            json!({
                "number": 0, "at": at, "kind": kept.kind, "name": kept.name, "text": kept.reason.text,
                "failure": {
                    "id": -number, "times": kept.times, "reason": kept.reason, "hints": kept.hints,
                },
            })
        };
        (1..).zip(&self.earlier).map(mark).collect()
    }
}
