//! Writes the status document (`plimsoll.events/1`): the scheduler's state with driver readings, plans, waits
//! and history.
//!
//! `/api/status` answers with it, and `/api/status/stream` sends it after changes, at most ten times a
//! second.

mod cards;
mod effects;
mod failures;
mod kept;
mod marks;
mod parts;
mod residency;
mod webhook;
mod what_if;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Bytes, CardId};
use plimsoll_cards::{HOST_CARD, HostMemory};
use plimsoll_config::{ConfiguredModel, Launch};
use plimsoll_flags::FlagOrigin;
use plimsoll_process::resident;
use plimsoll_scheduler::{ModelId, ModelState, RunId};
use serde_json::{Value, json};
use tokio::sync::Notify;

use self::kept::{FailureStore, KeptFailure};
use self::marks::Marks;
use self::parts::{HolderKind, HolderReading, parts};
use self::residency::Residency;
use super::Runtime;
use super::parts::Readings;
use super::state::SchedulerState;
use super::status::slots;
use plimsoll_route::ModelAbility;
use plimsoll_task::spawn_blocking;

pub(super) use self::failures::keep;
pub(super) use self::webhook::Webhook;
pub(super) use self::what_if::{dry_run, with_flags};

const SCHEMA: &str = "plimsoll.events/1";
/// Time between two events of the stream, so that a busy daemon does not spend its time on displays.
const APART: Duration = Duration::from_millis(100);

type PlannedTerms = Vec<(CardId, Vec<(&'static str, Bytes)>)>;
type TermsOfRuns = HashMap<RunId, PlannedTerms>;

/// Data of a status display beyond the scheduler's snapshot.
#[derive(Debug)]
pub(super) struct Board {
    state: Rc<SchedulerState>,
    changed: Notify,
    marks: Marks,
    /// The last mark that the stream has sent.
    sent: Cell<u64>,
    /// The file of failures, and those of earlier runs.
    store: FailureStore,
    earlier: Vec<KeptFailure>,
    failed: Notify,
    webhook: Option<Webhook>,
    residency: RefCell<Residency>,
    /// Planned terms of each run.
    terms: RefCell<TermsOfRuns>,
    host: RefCell<Option<HostReading>>,
}

/// Host memory with the resident part of each engine.
#[derive(Debug)]
struct HostReading {
    memory: HostMemory,
    engines: Vec<(String, Bytes)>,
}

/// Sends the document after changes, for as long as the daemon lives.
pub(super) async fn publish(runtime: Rc<Runtime>) {
    loop {
        runtime.board.changed.notified().await;
        runtime.reports.events.show(|| {
            let after = runtime.board.sent.replace(runtime.board.marks.last());
            runtime.document_after(after)
        });
        tokio::time::sleep(APART).await;
    }
}

impl Board {
    /// The board of a daemon with this configuration, whose earlier failures it shows.
    pub(super) fn of(state: Rc<SchedulerState>, webhook: Option<Webhook>) -> Self {
        let store = FailureStore::of(&state.settings.config);
        Self {
            state,
            changed: Notify::new(),
            marks: Marks::default(),
            sent: Cell::default(),
            earlier: store.read(),
            store,
            failed: Notify::new(),
            webhook,
            residency: RefCell::default(),
            terms: RefCell::default(),
            host: RefCell::default(),
        }
    }

    /// Schedules an event of the stream.
    pub(super) fn touch(&self) {
        self.changed.notify_one();
    }

    /// The document with the marks after number `after`; 0 gives all, and the history of residency.
    pub(super) fn document(&self, after: u64, readings: &Readings) -> Value {
        let mut document = self.overview(readings);
        document["marks"] = json!(self.marks.after(after));
        for mark in list(&mut document["marks"]) {
            // A model that was removed is in no list.
            let id = mark["model"].as_u64().and_then(|id| u32::try_from(id).ok()).map(ModelId);
            if let Some(id) = id.filter(|id| !self.state.is_present(*id)) {
                mark["name"] = json!(self.state.entry(id).name);
            }
        }
        if after == 0 {
            let marks = self.earlier_marks().into_iter().chain(list(&mut document["marks"]).map(Value::take));
            document["marks"] = marks.collect();
            document["residency"] = json!(*self.residency.borrow());
        }
        document
    }

    fn overview(&self, readings: &Readings) -> Value {
        let snapshot = self.state.snapshot();
        let mut document = json!(snapshot);
        document["schema"] = json!(SCHEMA);
        let refused = self.state.registry.borrow().all_refused();
        if !refused.is_empty() {
            document["refused"] = json!(refused);
        }
        let outlook = self.state.scheduler.borrow().at(self.state.now()).outlook();
        for (view, shown) in snapshot.models.iter().zip(list(&mut document["models"])) {
            let (progress, mut hints, speed) = self.state.statuses.with(view.id, |status| {
                (status.progress.clone(), status.hints.clone(), status.answers.speed())
            });
            let entry = self.state.entry(view.id);
            let profile = self.state.statuses.with(view.id, |status| status.profile.clone());
            // A declared size wins over the plan, as for a load.
            if let Some(planned) = entry.memory.or(profile.as_ref().and_then(|profile| profile.need)) {
                shown["planned"] = json!(planned);
            }
            if is_editable(&entry) {
                shown["editable"] = json!(true);
            }
            if profile.is_some_and(|profile| profile.can(ModelAbility::Vision)) {
                shown["images"] = json!(true);
            }
            if let Some(speed) = speed {
                shown["speed"] = json!((speed * 10.0).round() / 10.0);
            }
            if view.run.is_some()
                && let Some(slots) = slots(&self.state.entry(view.id))
            {
                shown["slots"] = json!(slots);
            }
            if let Some(spill) = readings.bus.spilled(view.id, &self.state) {
                shown["spill"] = spill;
            }
            shown["outlook"] = json!(outlook.iter().find(|(id, _)| *id == view.id).map(|(_, it)| it));
            if view.state == ModelState::Loading {
                shown["progress"] = json!(progress);
            }
            let failed = view.last_failure.as_ref();
            if let Some(mark) = failed.and_then(|reason| self.marks.standing(view.id, &reason.text)) {
                shown["failed_at"] = json!(mark.at);
                let reported = mark.failure.into_iter().flat_map(|failure| failure.hints);
                hints.extend(reported.filter(|hint| !hints.contains(hint)).collect::<Vec<_>>());
            }
            if !hints.is_empty() {
                shown["hints"] = json!(hints);
            }
        }
        let terms = self.terms.borrow();
        for (view, shown) in snapshot.cards.iter().zip(list(&mut document["cards"])) {
            let used = readings.used(view);
            shown["used"] = json!(used);
            shown["limit"] = json!(readings.limit(&view.id));
            shown["parts"] = json!(used.map(|used| readings.parts_of(view, used, &terms)));
        }
        document["host"] = json!(self.host_bar());
        document
    }

    /// The host's memory and the resident part of each engine, where the host is not one of the cards.
    fn host_bar(&self) -> Option<Value> {
        let host = self.host.borrow();
        let HostReading { memory, engines } = host.as_ref()?;
        if self.state.settings.host().is_some() {
            return None;
        }
        let used = memory.total.saturating_sub(memory.available);
        let holder = |(name, bytes): &(String, Bytes)| (name.clone(), *bytes);
        let engines: Vec<(String, Bytes)> = engines.iter().map(holder).collect();
        let holders = engines.iter().map(|(name, bytes)| HolderReading {
            kind: HolderKind::Model,
            name,
            process: None,
            bytes: *bytes,
            terms: &[],
        });
        Some(json!({
            "id": HOST_CARD, "total": memory.total, "used": used, "parts": parts(used, holders),
        }))
    }

    /// Adds the last reading to the history, and reads the host's memory if a display is open.
    pub(super) async fn sample(&self, readings: &Readings, is_watched: bool) {
        let snapshot = self.state.snapshot();
        let used: Vec<_> = snapshot.cards.iter().map(|card| readings.used(card)).collect();
        self.residency.borrow_mut().take(&snapshot, used.into_iter());
        if !is_watched {
            return;
        }
        let runs = self.state.runs();
        let engines: Vec<_> =
            runs.iter().filter_map(|run| Some((run.entry.name.clone(), run.pid()?))).collect();
        let read = spawn_blocking(move || {
            let engines =
                engines.into_iter().filter_map(|(name, pid)| Some((name, resident(pid)?))).collect();
            Some(HostReading { memory: HostMemory::read()?, engines })
        });
        self.host.replace(read.await.ok().flatten());
        self.touch();
    }
}

/// True if the flags of the model stand in a configuration of our own format, where they can be changed.
fn is_editable(entry: &ConfiguredModel) -> bool {
    let is_ours = match &entry.origin.0 {
        FlagOrigin::File { name, line: 1.. } => name.to_ascii_lowercase().ends_with(".toml"),
        _ => false,
    };
    is_ours && matches!(entry.launch, Launch::LlamaServer { .. })
}

fn list(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}
