//! Implementation of [`ModelService`], through which the HTTP server admits requests and lists models.

use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use plimsoll_base::{Bytes, CardKind, Share};
use plimsoll_config::ConfiguredModel;
use plimsoll_launch::Log;
use plimsoll_scheduler::{ModelId, ModelState, ModelView, Moment, SchedulerEvent, SchedulerSnapshot};
use serde_json::{Value, json};

use super::admission::RunPass;
use super::request_log::RequestRecord;
use super::{Runtime, RuntimeSettings};
use crate::route::{
    Events, Exposition, HeldMemory, HttpProblem, Modalities, ModelListing, ModelService, RequestPrompt,
    RouteOptions, Upstream, WhatIfError,
};

impl ModelService for Runtime {
    type Pass = RunPass;

    fn resolve(&self, name: &str) -> Option<ModelId> {
        self.state.borrow().registry.find(name)
    }

    fn stand_in(&self, name: Option<&str>) -> Option<ModelId> {
        self.state.borrow().registry.stand_in(name)
    }

    fn refusal(&self, name: &str) -> Option<HttpProblem> {
        let state = self.state.borrow();
        let refused = state.registry.refused(name)?;
        let message = format!("model '{}' is not served: {}", refused.name, refused.error);
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

    fn names(&self) -> Vec<String> {
        let state = self.state.borrow();
        // Unlisted models answer by name, but error messages do not reveal them.
        let listed = state.registry.present().filter(|(_, entry)| !entry.unlisted);
        listed.map(|(_, entry)| entry.name.clone()).collect()
    }

    async fn admit(
        self: Rc<Self>,
        model: ModelId,
        wish: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> Result<RunPass, HttpProblem> {
        // Advisory only: the scheduler decides again, and a model that stops in this moment is loaded after
        // all.
        let mut record = RequestRecord::begin(&self, model);
        if !wish.autoload.unwrap_or_else(|| self.autoloads()) && self.shown(model) != ModelState::Ready {
            record.refused(StatusCode::BAD_REQUEST);
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "model_not_loaded", "model is not loaded"));
        }
        self.arrive(model, wish.client, prompt, record).await
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
            description: String::new(),
            unlisted: entry.unlisted,
            state: self.shown(model),
            asleep: run.as_ref().is_some_and(|run| run.is_asleep()),
            arguments: run.as_ref().map(|run| run.arguments()).unwrap_or_default(),
            preset: None,
            exit_code: run.as_ref().and_then(|run| run.exit_code()),
            meta: run.as_ref().and_then(|run| run.about()?.get("meta").cloned()),
            modalities: Modalities::default(),
            facts: self.statuses.with(model, |status| status.facts.clone()),
            held: view.as_ref().map(|view| self.held(view)),
            expires_in: view.as_ref().and_then(|view| Some(view.idle_end?.since(self.now()))),
            memory: view.as_ref().and_then(memory),
            ttl: entry.ttl,
            pid: run.as_ref().filter(|run| run.exit_code().is_none()).and_then(|run| run.pid()),
            address: run.and_then(|run| run.upstream()).map(|it| it.address().to_string()),
        }
    }

    fn load(&self, model: ModelId) {
        self.submit(SchedulerEvent::LoadWanted { model });
    }

    fn unload(&self, model: ModelId) {
        self.submit(SchedulerEvent::UnloadWanted { model });
    }

    fn pin(&self, model: ModelId, time: Duration) {
        let name = &self.entry(model).name;
        match time {
            Duration::ZERO => tracing::info!("unpin {name}"),
            Duration::MAX => tracing::info!("pin {name}"),
            time => tracing::info!("pin {name} for {} s", time.as_secs()),
        }
        let until = if time.is_zero() { Moment::START } else { self.now() + time };
        self.submit(SchedulerEvent::PinWanted { model, until });
    }

    fn keep(&self, model: ModelId, time: Duration) {
        self.submit(SchedulerEvent::KeepWanted { model, time });
    }

    fn give_way(&self, card: Option<&str>, size: Bytes, time: Duration) -> Result<(), HttpProblem> {
        self.yield_memory(card, size, time)
    }

    fn about(&self) -> Value {
        let up = self.up_since().elapsed().as_secs();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let [answered, failed, abandoned] = self.counts.get();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "started": now.saturating_sub(up),
            "uptime": up,
            "requests": { "answered": answered, "failed": failed, "abandoned": abandoned },
        })
    }

    fn requests(&self) -> Value {
        self.open_requests()
    }

    async fn reload(&self) -> Result<(), HttpProblem> {
        let RuntimeSettings { config, .. } = &self.settings;
        let bad = |error: &dyn std::error::Error| {
            HttpProblem::new(StatusCode::BAD_REQUEST, "bad_config", error.to_string())
        };
        self.read_config(config).await.map_err(|error| bad(&error))
    }

    fn snapshot(&self) -> SchedulerSnapshot {
        self.state.borrow().scheduler.snapshot(self.now())
    }

    async fn what_if(&self, model: ModelId, flags: Vec<String>) -> Result<Value, WhatIfError> {
        self.dry_run(model, flags).await
    }

    fn document(&self) -> Value {
        Self::document(self, 0)
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn log(&self, model: Option<ModelId>) -> Log {
        model.map_or_else(|| self.log.clone(), |model| self.model_log(model))
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
    /// Memory of a run: measured, or else claimed.
    fn held(&self, view: &ModelView) -> HeldMemory {
        let shares = if view.measured.is_empty() { &view.claim } else { &view.measured };
        let is_gpu = |share: &&Share| {
            self.settings.cards().any(|card| card.id == share.card && card.kind != CardKind::Host)
        };
        HeldMemory {
            total: sum(shares),
            on_gpus: shares.iter().filter(is_gpu).map(|share| share.bytes).sum(),
        }
    }
}

fn sum(shares: &[Share]) -> Bytes {
    shares.iter().map(|share| share.bytes).sum()
}

/// Measured memory and growth of a model; `None` until it was measured.
fn memory(view: &ModelView) -> Option<Value> {
    // A zero would read as a measurement.
    let seen = !view.measured.is_empty() || view.growth.is_some();
    seen.then(|| {
        json!({
            "claim": sum(&view.claim),
            "measured": (!view.measured.is_empty()).then(|| sum(&view.measured)),
            "growth": view.growth,
        })
    })
}
