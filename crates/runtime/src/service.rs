//! Implements [`ModelService`], through which the HTTP server admits requests and lists models.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use plimsoll_base::{Bytes, CardId, CardKind, Share};
use plimsoll_config::{ConfiguredModel, RequestFilters};
use plimsoll_hub::DerivedModel;
use plimsoll_log::Log;
use plimsoll_scheduler::{ModelId, ModelState, ModelView, Moment, SchedulerEvent, SchedulerSnapshot};
use serde_json::{Value, json};

use super::{RunPass, Runtime, RuntimeSettings};
use plimsoll_route::{
    DownloadOrder, Events, Exposition, HttpProblem, Modalities, ModelListing, ModelService, OccupiedMemory,
    RequestPrompt, RouteOptions, Upstream, WhatIfError,
};

impl Runtime {
    /// Requests for the model in progress.
    pub fn in_flight(&self, model: ModelId) -> u32 {
        let view = self.state.borrow().scheduler.view(model, self.now());
        view.map_or(0, |view| view.in_flight)
    }
}

/// Time that an order to keep memory free waits for idle engines to free theirs.
const FREE_FIRST: Duration = Duration::from_millis(800);

impl ModelService for Runtime {
    type Pass = RunPass;

    fn resolve(&self, name: &str) -> Option<ModelId> {
        self.state.borrow().registry.find(name)
    }

    fn filters(&self, model: ModelId) -> Option<Arc<RequestFilters>> {
        let state = self.state.borrow();
        let filters = &state.registry.entry(model).filters;
        (!filters.is_empty()).then(|| Arc::clone(filters))
    }

    fn stand_in(&self, name: Option<&str>) -> Option<ModelId> {
        self.state.borrow().registry.stand_in(name)
    }

    fn refusal(&self, name: &str) -> Option<HttpProblem> {
        let state = self.state.borrow();
        let refused = state.registry.refused(name)?;
        let errors: Vec<String> = refused.errors().map(ToString::to_string).collect();
        let message = format!("model '{}' is not served: {}", refused.name, errors.join("; "));
        Some(HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "model_misconfigured", message))
    }

    fn with_flag(&self, flags: &[&str]) -> Option<ModelId> {
        let offers = |entry: &ConfiguredModel| {
            let options = entry.launch.options();
            options.is_some_and(|options| flags.iter().any(|flag| options.get(flag).is_some()))
        };
        let mut offering = self.present().into_iter().filter(|(_, entry)| offers(entry)).map(|(id, _)| id);
        let first = offering.next()?;
        let loaded = std::iter::once(first).chain(offering).find(|id| self.shown(*id) == ModelState::Ready);
        Some(loaded.unwrap_or(first))
    }

    fn autoloads(&self) -> bool {
        self.state.borrow().registry.autoloads()
    }

    fn upstream(&self, model: ModelId) -> Option<Rc<Upstream>> {
        let run = self.statuses.with(model, |status| status.run.clone());
        run.filter(|_| self.shown(model) == ModelState::Ready).and_then(|run| run.upstream())
    }

    fn traces(&self) -> bool {
        self.reports.traces.is_some()
    }

    fn admit_at_once(self: &Rc<Self>, model: ModelId, options: RouteOptions) -> Option<RunPass> {
        self.pass_at_once(model, options)
    }

    async fn admit(
        self: Rc<Self>,
        model: ModelId,
        options: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> Result<RunPass, HttpProblem> {
        self.admit_here(model, options, prompt).await
    }

    fn wait_line(&self, model: ModelId) -> String {
        let line = self.state.borrow().scheduler.wait_line(model, self.now());
        line.unwrap_or_else(|| "waiting for the model".to_owned())
    }

    fn models(&self) -> Vec<ModelId> {
        self.state.borrow().registry.present().map(|(model, _)| model).collect()
    }

    fn listing(&self, model: ModelId) -> ModelListing {
        let entry = self.entry(model);
        let run = self.statuses.with(model, |status| status.run.clone());
        let view = self.state.borrow().scheduler.view(model, self.now());
        ModelListing {
            name: entry.name.clone(),
            aliases: entry.aliases.clone(),
            tags: entry.tags.clone(),
            title: entry.title.clone(),
            description: entry.description.clone().unwrap_or_default(),
            unlisted: entry.unlisted,
            downloaded: self.is_downloaded(&entry),
            derived: entry.filters.derived.keys().cloned().collect(),
            state: self.shown(model),
            load_ordered: view.as_ref().is_some_and(|view| view.load_wanted),
            asleep: run.as_ref().is_some_and(|run| run.is_asleep()),
            arguments: run.as_ref().map(|run| run.arguments()).unwrap_or_default(),
            preset: None,
            exit_code: run.as_ref().and_then(|run| run.exit_code()),
            meta: run.as_ref().and_then(|run| run.about()?.get("meta").cloned()),
            modalities: Modalities::default(),
            profile: self.statuses.with(model, |status| status.profile.clone()),
            occupied: view.as_ref().map(|view| self.occupied(view)),
            expires_in: view.as_ref().and_then(|view| Some(view.idle_end?.since(self.now()))),
            memory: view.as_ref().and_then(|view| self.memory(view)),
            spill: self.spilled(model),
            ttl: entry.ttl,
            pid: run.as_ref().filter(|run| run.exit_code().is_none()).and_then(|run| run.pid()),
            address: run.and_then(|run| run.upstream()).map(|it| it.address().to_string()),
        }
    }

    fn is_named(&self, model: ModelId, fits: impl Fn(&str) -> bool) -> bool {
        let entry = self.entry(model);
        fits(&entry.name) || entry.aliases.iter().any(|alias| fits(alias))
    }

    fn load(&self, model: ModelId) {
        // An order of its own gets an answer of its own, even where the model fails as it did before. The
        // operator may have mended what is not seen of files and flags.
        self.statuses.with(model, |status| (status.reported, status.lasting) = (None, None));
        self.submit(SchedulerEvent::LoadWanted { model });
    }

    fn unload(&self, model: ModelId) {
        self.submit(SchedulerEvent::UnloadWanted { model });
    }

    fn pin(&self, model: ModelId, time: Duration) {
        let name = &self.entry(model).name;
        let view = || self.state.borrow().scheduler.view(model, self.now());
        let is_pinned = || view().is_some_and(|view| view.pinned);
        match time {
            // A pin of the configuration stays, and one that is not there does not end.
            Duration::ZERO if self.entry(model).pinned || !is_pinned() => {}
            Duration::ZERO => tracing::info!("unpin {name}"),
            Duration::MAX => tracing::info!("pin {name}"),
            time => tracing::info!("pin {name} for {} s", time.as_secs()),
        }
        let until = if time.is_zero() { Moment::START } else { self.now() + time };
        self.submit(SchedulerEvent::PinWanted { model, until });
    }

    fn keep(&self, model: ModelId, time: Option<Duration>) {
        self.submit(SchedulerEvent::KeepWanted { model, time });
    }

    async fn give_way(&self, card: Option<&str>, size: Bytes, time: Duration) -> Result<(), HttpProblem> {
        let cards: Vec<CardId> =
            self.yielding_cards(card, size)?.into_iter().map(|card| card.id.clone()).collect();
        let is_measured = self.state.borrow().scheduler.is_measured(&cards);
        if !cards.is_empty() && !size.is_zero() && !is_measured {
            // Engines that can free memory need not be stopped for it. The others are not kept waiting for
            // them.
            let _ = tokio::time::timeout(FREE_FIRST, self.me().free_idle()).await;
        }
        self.yield_memory(card, size, time)
    }

    fn about(&self) -> Value {
        let up = self.up_since().elapsed().as_secs();
        let [answered, failed, abandoned] = self.reports.counts.get();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "started": self.started(),
            "uptime": up,
            "requests": { "answered": answered, "failed": failed, "abandoned": abandoned },
        })
    }

    fn requests(&self) -> Value {
        self.open_requests()
    }

    async fn reload(&self) -> Result<Vec<String>, HttpProblem> {
        let RuntimeSettings { config, .. } = &self.settings;
        let bad = |error: &dyn std::error::Error| {
            HttpProblem::new(StatusCode::BAD_REQUEST, "bad_config", error.to_string())
        };
        self.read_config(config).await.map_err(|error| bad(&error))
    }

    async fn download(&self, order: &DownloadOrder) -> Result<Option<String>, HttpProblem> {
        self.begin_download(order).await
    }

    fn derives(&self) -> bool {
        self.settings.serve.downloads.is_some()
    }

    async fn derive(&self, model: DerivedModel) -> Result<(), HttpProblem> {
        self.note_derived(model).await
    }

    async fn remove(&self, name: &str) -> Result<(), HttpProblem> {
        self.remove_download(name).await
    }

    fn downloading(&self) -> Vec<Value> {
        self.downloads_as_models()
    }

    fn snapshot(&self) -> SchedulerSnapshot {
        self.state.borrow().scheduler.snapshot(self.now())
    }

    async fn what_if(&self, model: ModelId, flags: Vec<String>) -> Result<Value, WhatIfError> {
        self.dry_run(model, flags).await
    }

    fn what_if_kept_free(&self, card: Option<&str>, size: Bytes) -> Result<Value, HttpProblem> {
        let cards = self.yielding_cards(card, size)?;
        let state = self.state.borrow();
        let stated = cards.first().map(|card| state.scheduler.what_if_kept_free(&card.id, size, self.now()));
        Ok(json!(stated))
    }

    fn failures(&self) -> Value {
        self.failure_list()
    }

    fn document(&self) -> Value {
        Self::document(self, 0)
    }

    fn events(&self) -> &Events {
        &self.reports.events
    }

    fn log(&self, model: Option<ModelId>) -> Log {
        model.map_or_else(|| self.reports.log.clone(), |model| self.model_log(model))
    }

    fn write_metrics(&self, page: &mut Exposition) {
        let state = self.state.borrow();
        let models: Vec<_> =
            state.registry.present().map(|(model, entry)| (model, entry.name.clone())).collect();
        self.statuses.write(page, &models);
        // Released first, because extensions borrow the state themselves.
        drop(state);
        for extension in &self.extensions {
            extension.write_metrics(self, page);
        }
    }
}

impl Runtime {
    /// Unix time of the start.
    pub(super) fn started(&self) -> u64 {
        self.unix_time(self.moment(self.up_since()))
    }

    /// Unix time of a moment. Fractions are dropped last, so that each call gives the same second.
    pub(super) fn unix_time(&self, at: Moment) -> u64 {
        let ago = self.now().since(at);
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.saturating_sub(ago).as_secs())
    }

    /// Memory of a run: measured, or else claimed.
    fn occupied(&self, view: &ModelView) -> OccupiedMemory {
        let measured = |claim: &Share| view.measured.iter().find(|share| share.card == claim.card).cloned();
        let shares: Vec<Share> =
            view.claim.iter().map(|claim| measured(claim).unwrap_or_else(|| claim.clone())).collect();
        let on_gpus = shares.iter().filter(|share| self.is_gpu(&share.card));
        OccupiedMemory {
            total: shares.iter().map(|share| share.bytes).sum(),
            on_gpus: on_gpus.map(|share| share.bytes).sum(),
        }
    }

    fn is_gpu(&self, id: &CardId) -> bool {
        self.settings.cards().any(|card| card.id == *id && card.kind != CardKind::Host)
    }

    /// Measured memory and growth of a model on the cards that it computes on; `None` until it was measured.
    fn memory(&self, view: &ModelView) -> Option<Value> {
        let measured = self.on_own_cards(&view.measured);
        // A zero would read as a measurement.
        (measured.is_some() || view.growth.is_some())
            .then(|| json!({"claim": self.on_own_cards(&view.claim).unwrap_or_default(), "measured": measured, "growth": view.growth}))
    }

    /// Sum of the shares of the cards that models compute on: without the host's memory beside others.
    pub(super) fn on_own_cards(&self, shares: &[Share]) -> Option<Bytes> {
        let alongside = self.settings.cards().any(|card| card.kind != CardKind::Host);
        let own = || shares.iter().filter(|share| !alongside || self.is_gpu(&share.card));
        own().next()?;
        Some(own().map(|share| share.bytes).sum())
    }
}
