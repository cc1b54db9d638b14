//! Implements [`ModelService`], by which the HTTP server's own endpoints list and change models.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use plimsoll_base::{Advice, Bytes, CardId, Hint};
use plimsoll_config::{ConfiguredModel, RequestFilters, UnfitModel};
use plimsoll_hub::DerivedModel;
use plimsoll_log::Log;
use plimsoll_scheduler::{ModelId, ModelState, Moment, SchedulerEvent, SchedulerSnapshot};
use serde_json::{Value, json};

use super::Runtime;
use super::board::{dry_run, with_flags};
use super::flags_file;
use super::freeing::free_idle;
use super::survey::Patience;
use plimsoll_route::{
    DownloadOrder, Events, Exposition, FlagsOrder, HttpProblem, Modalities, ModelAbility, ModelListing,
    ModelService, Upstream, WhatIfError,
};

/// Time that an order to keep memory free waits for idle engines to free theirs.
const FREE_FIRST: Duration = Duration::from_millis(800);

impl ModelService for Runtime {
    fn resolve(&self, name: &str) -> Option<ModelId> {
        self.state.registry.borrow().find(name)
    }

    fn filters(&self, model: ModelId) -> Option<Arc<RequestFilters>> {
        let registry = self.state.registry.borrow();
        let filters = &registry.entry(model).filters;
        (!filters.is_empty()).then(|| Arc::clone(filters))
    }

    fn stand_in(&self, name: Option<&str>) -> Option<ModelId> {
        self.state.registry.borrow().stand_in(name)
    }

    fn refusal(&self, name: &str) -> Option<HttpProblem> {
        let registry = self.state.registry.borrow();
        if let Some(UnfitModel { name, why }) = registry.unfit(name) {
            let message = format!("model '{name}' is not served: {why}");
            let hint = Hint::new(Advice::Other(format!("`plimsoll plan FILE` shows what {name} takes")));
            let mut problem = HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "never_fits", message);
            problem.hints.push(hint);
            return Some(problem);
        }
        let refused = registry.refused(name)?;
        let errors: Vec<String> = refused.errors().map(ToString::to_string).collect();
        let message = format!("model '{}' is not served: {}", refused.name, errors.join("; "));
        Some(HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "model_misconfigured", message))
    }

    fn with_flag(&self, flags: &[&str]) -> Option<ModelId> {
        let offers = |entry: &ConfiguredModel| {
            let options = entry.launch.options();
            options.is_some_and(|options| flags.iter().any(|flag| options.get(flag).is_some()))
        };
        let mut offering =
            self.state.present().into_iter().filter(|(_, entry)| offers(entry)).map(|(id, _)| id);
        let first = offering.next()?;
        let loaded = std::iter::once(first)
            .chain(offering)
            .find(|id| self.state.statuses.shown(*id) == ModelState::Ready);
        Some(loaded.unwrap_or(first))
    }

    fn autoloads(&self) -> bool {
        self.state.registry.borrow().autoloads()
    }

    fn upstream(&self, model: ModelId) -> Option<Rc<Upstream>> {
        let statuses = &self.state.statuses;
        let run = statuses.with(model, |status| status.run.clone());
        run.filter(|_| statuses.shown(model) == ModelState::Ready).and_then(|run| run.upstream())
    }

    fn traces(&self) -> bool {
        self.reports.traces.is_some()
    }

    fn wait_line(&self, model: ModelId) -> String {
        let line = self.state.scheduler.borrow().at(self.state.now()).wait_line(model);
        line.unwrap_or_else(|| "waiting for the model".to_owned())
    }

    fn models(&self) -> Vec<ModelId> {
        self.state.registry.borrow().present().map(|(model, _)| model).collect()
    }

    fn listing(&self, model: ModelId) -> ModelListing {
        let (entry, statuses, view) = (self.state.entry(model), &self.state.statuses, self.state.view(model));
        let (run, profile) = statuses.with(model, |status| (status.run.clone(), status.profile.clone()));
        ModelListing {
            name: entry.name.clone(),
            aliases: entry.aliases.clone(),
            tags: entry.tags.clone(),
            title: entry.title.clone(),
            description: entry.description.clone().unwrap_or_default(),
            unlisted: entry.unlisted,
            downloaded: self.is_downloaded(&entry),
            derived: entry.filters.derived.keys().cloned().collect(),
            state: statuses.shown(model),
            load_ordered: view.as_ref().is_some_and(|view| view.load_wanted),
            asleep: run.as_ref().is_some_and(|run| run.is_asleep()),
            arguments: run.as_ref().map(|run| run.arguments()).unwrap_or_default(),
            preset: None,
            exit_code: run.as_ref().and_then(|run| run.exit_code()),
            meta: run.as_ref().and_then(|run| run.about()?.get("meta").cloned()),
            modalities: Modalities::of(profile.as_ref().is_some_and(|it| it.can(ModelAbility::Vision))),
            profile,
            occupied: view.as_ref().map(|view| self.settings.occupied(view)),
            expires_in: view.as_ref().and_then(|view| Some(view.idle_end?.since(self.state.now()))),
            memory: view.as_ref().and_then(|view| self.settings.memory(view)),
            spill: self.readings.bus.spilled(model, &self.state),
            ttl: entry.ttl,
            pid: run.as_ref().filter(|run| run.exit_code().is_none()).and_then(|run| run.pid()),
            address: run.and_then(|run| run.upstream()).map(|it| it.address().to_string()),
        }
    }

    fn is_named(&self, model: ModelId, fits: impl Fn(&str) -> bool) -> bool {
        let entry = self.state.entry(model);
        fits(&entry.name) || entry.aliases.iter().any(|alias| fits(alias))
    }

    fn load(&self, model: ModelId) {
        // An order of its own gets an answer of its own, even where the model fails as it did before. The
        // operator may have mended what is not seen of files and flags.
        self.state.statuses.with(model, |status| (status.reported, status.lasting) = (None, None));
        self.submit(SchedulerEvent::LoadWanted { model });
    }

    fn unload(&self, model: ModelId) {
        self.submit(SchedulerEvent::UnloadWanted { model });
    }

    fn pin(&self, model: ModelId, time: Duration) {
        let entry = self.state.entry(model);
        let name = &entry.name;
        let is_pinned = || self.state.view(model).is_some_and(|view| view.pinned);
        match time {
            // A pin of the configuration stays, and one that is not there does not end.
            Duration::ZERO if entry.pinned || !is_pinned() => {}
            Duration::ZERO => tracing::info!("unpin {name}"),
            Duration::MAX => tracing::info!("pin {name}"),
            time => tracing::info!("pin {name} for {} s", time.as_secs()),
        }
        let until = if time.is_zero() { Moment::START } else { self.state.now() + time };
        self.submit(SchedulerEvent::PinWanted { model, until });
    }

    fn keep(&self, model: ModelId, time: Option<Duration>) {
        self.submit(SchedulerEvent::KeepWanted { model, time });
    }

    async fn give_way(&self, card: Option<&str>, size: Bytes, time: Duration) -> Result<(), HttpProblem> {
        let cards: Vec<CardId> =
            self.settings.yielding_cards(card, size)?.into_iter().map(|card| card.id.clone()).collect();
        let is_measured = self.state.scheduler.borrow().is_measured(&cards);
        if !cards.is_empty() && !size.is_zero() && !is_measured {
            // Engines that can free memory need not be stopped for it. The others are not kept waiting for
            // them.
            let _ = tokio::time::timeout(FREE_FIRST, free_idle(self)).await;
        }
        let yields = self.state.yields(card, size, time)?;
        yields.into_iter().for_each(|event| self.submit(event));
        Ok(())
    }

    fn about(&self) -> Value {
        let up = self.state.up_since().elapsed().as_secs();
        let [answered, failed, abandoned] = self.reports.counts.get();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "started": self.state.started(),
            "uptime": up,
            "requests": { "answered": answered, "failed": failed, "abandoned": abandoned },
        })
    }

    fn requests(&self) -> Value {
        self.reports.counts.open_requests(&self.state)
    }

    async fn reload(&self) -> Result<Vec<String>, HttpProblem> {
        let bad = |error: &dyn std::error::Error| {
            HttpProblem::new(StatusCode::BAD_REQUEST, "bad_config", error.to_string())
        };
        self.read_config(&self.settings.config).await.map_err(|error| bad(&error))
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
        self.files.downloads.as_models()
    }

    fn snapshot(&self) -> SchedulerSnapshot {
        self.state.snapshot()
    }

    async fn what_if(&self, model: ModelId, flags: Vec<String>) -> Result<Value, WhatIfError> {
        let entry = with_flags(&self.state.entry(model), &flags)?;
        dry_run(&self.state, self.readings.surveyor(Patience::Known), model, entry).await
    }

    async fn flags(&self, order: FlagsOrder) -> Result<Value, HttpProblem> {
        flags_file::carry_out(self, order).await
    }

    fn what_if_kept_free(&self, card: Option<&str>, size: Bytes) -> Result<Value, HttpProblem> {
        let cards = self.settings.yielding_cards(card, size)?;
        let (scheduler, now) = (self.state.scheduler.borrow(), self.state.now());
        let stated = cards.first().map(|card| scheduler.what_if_kept_free(&card.id, size, now));
        Ok(json!(stated))
    }

    fn failures(&self) -> Value {
        self.board.failure_list()
    }

    fn document(&self) -> Value {
        self.document_after(0)
    }

    fn events(&self) -> &Events {
        &self.reports.events
    }

    fn log(&self, model: Option<ModelId>) -> Log {
        model.map_or_else(|| self.reports.log.clone(), |model| self.reports.model_log(model))
    }

    fn write_metrics(&self, page: &mut Exposition) {
        let models: Vec<_> =
            self.state.present().into_iter().map(|(model, entry)| (model, entry.name.clone())).collect();
        self.state.statuses.write(page, &models);
        for extension in &self.extensions {
            extension.write_metrics(self, page);
        }
    }
}
