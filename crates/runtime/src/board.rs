//! Writes the status document (`plimsoll.events/1`): the scheduler's state with driver readings, plans, waits
//! and history.
//!
//! `/api/status` answers with it, and `/api/status/stream` sends it after changes, at most ten times a
//! second.

mod failures;
mod kept;
mod marks;
mod parts;
mod residency;
mod webhook;
mod what_if;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardId, CardKind, Hint, Order, Placement, Reason};
use plimsoll_cards::{HOST_CARD, HostMemory, Reading};
use plimsoll_doctor::EngineVerdict;
use plimsoll_process::resident;
use plimsoll_scheduler::{
    CardView, End, ModelId, ModelState, RequestRefusal, RequestRefusalKind, RunId, SchedulerEffect,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use self::kept::{FailureStore, KeptFailure};
use self::marks::Marks;
use self::parts::{CardPart, HolderKind, HolderReading, parts};
use self::residency::Residency;
use super::memory::group_of;
use super::overflow::{KnownBus, move_to_host};
use super::run::EngineRun;
use super::status::slots;
use super::{Runtime, in_a_line};
use plimsoll_route::ModelService;
use plimsoll_task::spawn_blocking;

pub(super) use self::failures::keep;
pub(super) use self::webhook::Webhook;

const SCHEMA: &str = "plimsoll.events/1";
/// Time between two events of the stream, so that a busy daemon does not spend its time on displays.
const APART: Duration = Duration::from_millis(100);

type PlannedTerms = Vec<(CardId, Vec<(&'static str, Bytes)>)>;

/// Data of a status display beyond the scheduler's snapshot.
#[derive(Debug, Default)]
pub(super) struct Board {
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
    terms: RefCell<HashMap<RunId, PlannedTerms>>,
    host: RefCell<Option<HostReading>>,
    pub(super) bus: KnownBus,
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
            runtime.document(after)
        });
        tokio::time::sleep(APART).await;
    }
}

impl Board {
    /// The board of a daemon with this configuration, whose earlier failures it shows.
    pub(super) fn of(configuration: &Path, webhook: Option<Webhook>) -> Self {
        let store = FailureStore::of(configuration);
        Self { earlier: store.read(), store, webhook, bus: KnownBus::read(), ..Self::default() }
    }

    /// Schedules an event of the stream.
    pub(super) fn touch(&self) {
        self.changed.notify_one();
    }
}

impl Runtime {
    /// The document with the marks after number `after`; 0 gives all, and the history of residency.
    pub(super) fn document(&self, after: u64) -> Value {
        let mut document = self.overview();
        document["marks"] = json!(self.board.marks.after(after));
        for mark in list(&mut document["marks"]) {
            // A model that was removed is in no list.
            let id = mark["model"].as_u64().and_then(|id| u32::try_from(id).ok()).map(ModelId);
            if let Some(id) = id.filter(|id| !self.is_present(*id)) {
                mark["name"] = json!(self.entry(id).name);
            }
        }
        if after == 0 {
            let marks = self.earlier_marks().into_iter().chain(list(&mut document["marks"]).map(Value::take));
            document["marks"] = marks.collect();
            document["residency"] = json!(*self.board.residency.borrow());
        }
        document
    }

    fn overview(&self) -> Value {
        let snapshot = self.scheduler_snapshot();
        let mut document = json!(snapshot);
        document["schema"] = json!(SCHEMA);
        document["server"] = self.about();
        let refused = self.state.borrow().registry.all_refused();
        if !refused.is_empty() {
            document["refused"] = json!(refused);
        }
        let outlook = self.state.borrow().scheduler.outlook(self.now());
        for (view, shown) in snapshot.models.iter().zip(list(&mut document["models"])) {
            let (progress, mut hints, speed) = self.statuses.with(view.id, |status| {
                (status.progress.clone(), status.hints.clone(), status.answers.speed())
            });
            if let Some(speed) = speed {
                shown["speed"] = json!((speed * 10.0).round() / 10.0);
            }
            if view.run.is_some()
                && let Some(slots) = slots(&self.entry(view.id))
            {
                shown["slots"] = json!(slots);
            }
            if let Some(spill) = self.spilled(view.id) {
                shown["spill"] = spill;
            }
            shown["outlook"] = json!(outlook.iter().find(|(id, _)| *id == view.id).map(|(_, it)| it));
            if view.state == ModelState::Loading {
                shown["progress"] = json!(progress);
            }
            let failed = view.last_failure.as_ref();
            if let Some(mark) = failed.and_then(|reason| self.board.marks.standing(view.id, &reason.text)) {
                shown["failed_at"] = json!(mark.at);
                let reported = mark.failure.into_iter().flat_map(|failure| failure.hints);
                hints.extend(reported.filter(|hint| !hints.contains(hint)).collect::<Vec<_>>());
            }
            if !hints.is_empty() {
                shown["hints"] = json!(hints);
            }
        }
        for (view, shown) in snapshot.cards.iter().zip(list(&mut document["cards"])) {
            let used = self.used(view);
            shown["used"] = json!(used);
            shown["limit"] = json!(self.limit(&view.id));
            shown["parts"] = json!(used.map(|used| self.parts_of(view, used)));
        }
        document["host"] = json!(self.host_bar());
        document["downloads"] = json!(self.downloads_shown());
        for extension in &self.extensions {
            extension.add_to_document(&mut document);
        }
        document
    }

    /// Memory in use on the card by the driver's last reading; `None` without one.
    ///
    /// DECISION: a described part of the host's memory has no reading of its own, so what its models hold is
    /// in use.
    fn used(&self, card: &CardView) -> Option<Bytes> {
        if self.is_part_of_host(&card.id) {
            return Some(card.holders.iter().map(|holder| holder.measured.unwrap_or(holder.claim)).sum());
        }
        let free = self.readings.last.borrow().free_on(&card.id)?;
        Some(card.total.saturating_sub(free))
    }

    /// The load line: memory for all models on a card without other processes.
    fn limit(&self, card: &CardId) -> Option<Bytes> {
        self.state.borrow().scheduler.ledger().account(card).map(|account| account.limit())
    }

    /// True for host memory of which the user described a part.
    fn is_part_of_host(&self, card: &CardId) -> bool {
        let mut limits = self.settings.scheduler.cards.iter();
        limits.any(|limit| {
            limit.card.id == *card && limit.card.kind == CardKind::Host && limit.budget.is_some()
        })
    }

    fn parts_of(&self, card: &CardView, used: Bytes) -> Vec<CardPart> {
        let is_part = self.is_part_of_host(&card.id);
        let terms = self.board.terms.borrow();
        let planned = |run: RunId| {
            let of_run = terms.get(&run)?.iter().find(|(id, _)| *id == card.id)?;
            Some(of_run.1.as_slice())
        };
        let models = card.holders.iter().filter_map(|holder| {
            let terms = planned(holder.run).unwrap_or_default();
            let (kind, name) = (HolderKind::Model, holder.model.as_str());
            let bytes = holder.measured.or(is_part.then_some(holder.claim))?;
            Some(HolderReading { kind, name, process: None, bytes, terms })
        });
        let reading = self.readings.last.borrow();
        let foreign = self.foreign(&reading, &card.id);
        parts(used, models.chain(foreign))
    }

    /// Processes of the reading that are no engines of ours.
    fn foreign<'a>(
        &self,
        reading: &'a Reading,
        card: &CardId,
    ) -> impl Iterator<Item = HolderReading<'a>> + use<'a> {
        let engines: Vec<u32> = self.runs().iter().filter_map(|run| run.pid()).collect();
        let on_card = reading.holders.iter().filter(|holder| holder.card == *card);
        let foreign = on_card.filter(|holder| group_of(holder).is_none_or(|group| !engines.contains(&group)));
        let named: Vec<_> = foreign
            .filter_map(|holder| {
                let name = holder.name.as_deref().unwrap_or_default();
                let (kind, process) = (HolderKind::Foreign, Some(holder.pid));
                Some(HolderReading { kind, name, process, bytes: holder.used?, terms: &[] })
            })
            .collect();
        named.into_iter()
    }

    /// The host's memory and the resident part of each engine, where the host is not one of the cards.
    fn host_bar(&self) -> Option<Value> {
        let host = self.board.host.borrow();
        let HostReading { memory, engines } = host.as_ref()?;
        if self.settings.cards().any(|card| card.kind == CardKind::Host) {
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
    pub(super) async fn sample(&self) {
        let snapshot = self.scheduler_snapshot();
        let used: Vec<_> = snapshot.cards.iter().map(|card| self.used(card)).collect();
        self.board.residency.borrow_mut().take(&snapshot, used.into_iter());
        if !self.reports.events.is_watched() {
            return;
        }
        let runs = self.runs();
        let engines: Vec<_> =
            runs.iter().filter_map(|run| Some((run.entry.name.clone(), run.pid()?))).collect();
        let read = spawn_blocking(move || {
            let engines =
                engines.into_iter().filter_map(|(name, pid)| Some((name, resident(pid)?))).collect();
            Some(HostReading { memory: HostMemory::read()?, engines })
        });
        self.board.host.replace(read.await.ok().flatten());
        self.board.touch();
    }

    /// Records what an effect means for displays; `was` is the state that a model had before it.
    pub(super) fn mark_effect(&self, effect: &SchedulerEffect, was: ModelState) {
        // Each request has one, which no display shows.
        if matches!(effect, SchedulerEffect::Dispatch { .. }) {
            return;
        }
        let (now, marks) = (self.now(), &self.board.marks);
        match effect {
            SchedulerEffect::Start { run, model, placement } => {
                let terms = self.planned_terms(*model, placement);
                self.board.terms.borrow_mut().insert(*run, terms);
                let bytes: Bytes = placement.shares.iter().map(|share| share.bytes).sum();
                marks.add(now, "load", Some(*model), format!("claims {bytes}"));
            }
            SchedulerEffect::Stop { run, .. } => {
                let Some(model) = self.run(*run).map(|run| run.model) else { return };
                let why = self.state.borrow().scheduler.stop_reason(*run, now);
                marks.add(now, "stop", Some(model), why.map_or(String::new(), |why| in_a_line(&why)));
            }
            // DECISION: a request that is refused because its model failed is not a failure of its own. The
            // mark of the model has the engine's words, and requests that failed are counted elsewhere.
            SchedulerEffect::Refuse { refusal, .. } if !is_of_a_failed_model(refusal) => {
                self.mark_failure("refused", None, &refusal.reason, &refusal.hints);
            }
            SchedulerEffect::StateChanged { model, state: ModelState::Ready } => {
                let stays = if was == ModelState::Draining { "it no longer has to be unloaded" } else { "" };
                marks.add(now, "ready", Some(*model), stays.to_owned());
            }
            SchedulerEffect::GiveUpLoad { model, reason } => {
                self.mark_failure("refused", Some(*model), reason, &[]);
            }
            SchedulerEffect::StateChanged { model, state: ModelState::Failed } => self.mark_failed(*model),
            _ => {}
        }
    }

    fn mark_failure(&self, kind: &'static str, model: Option<ModelId>, reason: &Reason, hints: &[Hint]) {
        let is_new = self.board.marks.fail(self.now(), kind, model, reason, hints);
        self.board.failed.notify_one();
        if let Some(webhook) = self.board.webhook.as_ref().filter(|_| is_new) {
            webhook.send(self.failure_document());
        }
    }

    /// Records a failure without an engine, such as a damaged file.
    fn mark_failed(&self, model: ModelId) {
        let view = self.state.borrow().scheduler.view(model, self.now());
        let failure = view.and_then(|view| view.last_failure);
        let (now, marks) = (self.now(), &self.board.marks);
        let is_reported =
            |failure: &Reason| marks.just_reported(now, model, &failure.text) || marks.caused(now, failure);
        if let Some(failure) = failure.filter(|failure| !is_reported(failure)) {
            let hints = self.statuses.with(model, |status| status.hints.clone());
            self.mark_failure("failed", Some(model), &failure, &hints);
        }
    }

    /// Records the end of an engine.
    pub(super) fn mark_end(&self, run: &EngineRun, verdict: &EngineVerdict) {
        self.board.terms.borrow_mut().remove(&run.id);
        let (now, marks) = (self.now(), &self.board.marks);
        match &verdict.end {
            End::Expected => marks.add(now, "gone", Some(run.model), String::new()),
            End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason, .. } => {
                let mut hints = verdict.hints.clone();
                hints.extend(self.statuses.with(run.model, |status| status.hints.clone()));
                let diagnosed = verdict.diagnosis.iter().flat_map(|diagnosis| &diagnosis.hints);
                hints.extend(diagnosed.cloned());
                hints.dedup();
                self.mark_failure("failed", Some(run.model), reason, &hints);
            }
        }
    }

    fn planned_terms(&self, model: ModelId, placement: &Placement) -> PlannedTerms {
        let demand = self.statuses.with(model, |status| status.demand.clone());
        let served = self.settings.served().into_iter();
        let cards: Vec<Card> = served.filter(|card| placement.cards().any(|id| *id == card.id)).collect();
        let mut planned = demand.map(|demand| demand.terms(&cards)).unwrap_or_default();
        move_to_host(&self.overflow(model, placement), &mut planned);
        // Mapped weights are page cache, which is not measured: what is there is of the other terms first.
        let hosts = self.settings.cards().filter(|card| card.kind == CardKind::Host);
        let hosts: Vec<&CardId> = hosts.map(|card| &card.id).collect();
        for (_, terms) in planned.iter_mut().filter(|(card, _)| hosts.contains(&card)) {
            terms.order_by_key(|(term, _)| match *term {
                "prompts" => 2,
                "weights" => 1,
                _ => 0,
            });
        }
        planned
    }
}

/// True where the model's own failure has a mark.
fn is_of_a_failed_model(refusal: &RequestRefusal) -> bool {
    matches!(
        refusal.kind,
        RequestRefusalKind::LoadFailed | RequestRefusalKind::Unstartable | RequestRefusalKind::EngineDied
    )
}

fn list(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}
