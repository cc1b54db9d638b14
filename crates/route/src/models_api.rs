//! Answers the endpoints of the daemon itself: listings, load and unload, logs, metrics and status.
//!
//! They follow llama-server's router (`/models`), llama-swap (`/running`, `/unload`, `/logs`) and Plimsoll's
//! own API (`/api/status`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{Method, Response, StatusCode};
use plimsoll_base::Order;
use plimsoll_scheduler::{ModelId, ModelState};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::api::{self, Own};
use super::body::{ClientBody, receive_json};
use super::download_order::DownloadOrder;
use super::engine_metrics::EngineMetrics;
use super::engine_page;
use super::exposition::Exposition;
use super::listing::ModelListing;
use super::logs;
use super::memory_page;
use super::model_service::{ModelService, RequestRouter};
use super::openapi;
use super::page;
use super::problem::{HttpProblem, without_engine_words};
use super::query;
use super::reply::{self, Reply, ReplyBody};
use super::server::{HttpServer, PROXY_FLAG};
use super::what_if;

const EVENTS: &str = "text/event-stream";
const TEXT: &str = "text/plain; charset=utf-8";
// Prometheus recognises its text format by this version.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Build that `/props` reports.
///
/// DECISION: the llama-server whose routes these are, in its form `bNUMBER-COMMIT`, because clients read the
/// number to decide what they may ask for.
const BUILD: &str = concat!("b10605-plimsoll-", env!("CARGO_PKG_VERSION"));

impl<H: RequestRouter> HttpServer<H> {
    pub(crate) async fn own(
        &self,
        own: Own,
        rest: &str,
        head: &Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        Ok(match own {
            Own::Root => reply::text(TEXT, "Ollama is running"),
            Own::Index => reply::text(TEXT, api::index()),
            Own::OpenApi => reply::json(&openapi::description(!self.settings.keys.is_empty())),
            Own::Page(file) => page::answer(file),
            Own::Health => reply::json(&json!({ "status": "ok" })),
            // Ollama's clients compare the first.
            Own::Version => reply::json(&json!({
                "version": plimsoll_ollama::VERSION, "name": "plimsoll", "plimsoll": env!("CARGO_PKG_VERSION"),
            })),
            Own::Ollama(listing) => self.ollama_listing(listing, head, body).await?,
            Own::LmStudioModels => {
                let listed = self.entries(head).map(|listing| listing.as_lm_studio());
                reply::json(&json!({ "object": "list", "data": listed.collect::<Vec<Value>>() }))
            }
            Own::LmStudioModel => reply::json(&self.entry_in_path(head, rest)?.as_lm_studio()),
            Own::Props => reply::json(&self.props()),
            Own::Models => self.models(head).await?,
            Own::Model => reply::json(&self.entry_in_path(head, rest)?.as_model(now())),
            Own::Download => self.download(head, body).await?,
            Own::Remove => self.remove(head).await?,
            Own::Load => self.load(head, self.receive_model(head, body).await?)?,
            Own::Unload => self.unload(head, self.receive_model(head, body).await?)?,
            Own::Pin => self.pin(head, self.receive_model(head, body).await?)?,
            Own::Unpin => self.unpin(head, self.receive_model(head, body).await?)?,
            Own::ModelEvents => {
                let mut listener = self.service.local().events().listen_to_models();
                reply::feed(EVENTS, self.ending(head), move |cx| listener.poll_next(cx))
            }
            Own::Running => self.running(head),
            // llama-swap's path for all, with the body of the paths for one.
            Own::UnloadAll => match self.model_in_body(head, body).await? {
                Some(model) => self.unload(head, model)?,
                None => self.unload_all(head),
            },
            Own::UnloadNamed => self.unload(head, self.named_in_path(head, rest)?)?,
            Own::Reload => {
                let notes = self.reload(head).await?;
                reply::json(&json!({ "success": true, "reload": notes }))
            }
            Own::Logs => {
                let name = query::parameter(head.uri.query(), "model");
                let model = name.map(|name| self.find_model(head, &name)).transpose()?;
                reply::text(TEXT, logs::tail(&self.service.local().log(model)))
            }
            Own::LogStream => self.log_stream(rest, head)?,
            Own::Metrics => self.metrics().await,
            // A reason may quote an engine's log, and with it another client's prompt.
            Own::Status => {
                let mut status = without_engine_words(self.document(head));
                status["requests"] = self.service.local().requests();
                reply::json(&status)
            }
            Own::Memory => reply::json(&memory_page::devices(&self.service.local().document())),
            Own::Failures => reply::json(&self.failures(head)),
            Own::WhatIf => self.what_if(head).await?,
            Own::Flags | Own::PlanFlags | Own::SaveFlags | Own::UndoFlags => {
                self.flags(own, head, body).await?
            }
            Own::Yields => self.yields(),
            Own::Yield => self.give_way(head, body).await?,
            Own::EndYield => self.end_yield(head).await?,
            Own::StatusStream => {
                let mut listener = self.service.local().events().listen_to_snapshots(self.document(head));
                reply::feed(EVENTS, self.ending(head), move |cx| listener.poll_next(cx))
            }
        })
    }

    /// `?reload` with anything reads the configuration again first, as llama-server's router does.
    async fn models(&self, head: &Parts) -> Result<Reply<H::Pass>, HttpProblem> {
        let reload = match query::parameter(head.uri.query(), "reload") {
            Some(_) => Some(self.reload(head).await?),
            None => None,
        };
        // llama-server reports the time of the answer here as well.
        let created = now();
        let mut models: Vec<Value> = self.entries(head).map(|listing| listing.as_model(created)).collect();
        let downloading = self.service.local().downloading().into_iter();
        let is_permitted =
            |model: &Value| model["id"].as_str().is_some_and(|name| self.permitted_name(head, name).is_ok());
        models.extend(downloading.filter(is_permitted));
        let mut list = json!({ "object": "list", "data": models });
        if let Some(notes) = reload {
            list["reload"] = json!(notes);
        }
        Ok(reply::json(&list))
    }

    /// Begins a download, as `POST /models` of llama-server's router does.
    async fn download(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let order: Value = receive_json(body, &self.bodies, &self.settings.limits).await?;
        let order = DownloadOrder::read(&order, !self.is_operator(head))?;
        self.permitted_name(head, &order.name)?;
        let memory = self.service.local().download(&order).await?;
        // Afterwards, because an invalid name may contain anything.
        self.audit(head, "download", &order.name);
        Ok(reply::json(&json!({ "success": true, "model": order.name, "memory": memory })))
    }

    async fn remove(&self, head: &Parts) -> Result<Reply<H::Pass>, HttpProblem> {
        let name = query::parameter(head.uri.query(), "model").filter(|name| !name.is_empty());
        self.remove_named(head, &name.ok_or_else(no_name)?).await?;
        Ok(success())
    }

    /// Removes a downloaded or derived model, or cancels a download.
    pub(super) async fn remove_named(&self, head: &Parts, name: &str) -> Result<(), HttpProblem> {
        self.permitted_name(head, name)?;
        self.service.local().remove(name).await?;
        self.audit(head, "remove", name);
        Ok(())
    }

    async fn reload(&self, head: &Parts) -> Result<Vec<String>, HttpProblem> {
        // First, because a reload may revoke the key.
        self.audit(head, "reload", "");
        self.service.local().reload().await
    }

    /// The models that listings show to the client.
    pub(super) fn listed(&self, head: &Parts) -> impl Iterator<Item = ModelListing> {
        let permitted = self.service.local().models().into_iter().filter(|model| self.permits(head, *model));
        permitted.map(|model| self.service.local().listing(model)).filter(|listing| !listing.unlisted)
    }

    /// The entries of lists: the listed models, and the names that were derived from each.
    pub(super) fn entries(&self, head: &Parts) -> impl Iterator<Item = ModelListing> {
        self.listed(head).flat_map(|listing| {
            let derived: Vec<ModelListing> =
                listing.derived.iter().map(|name| listing.clone().named(name)).collect();
            std::iter::once(listing).chain(derived)
        })
    }

    /// The properties that llama-server's router reports; its web page reads them.
    fn props(&self) -> Value {
        json!({
            "role": "router",
            // 0 is no limit, as in llama-server.
            "max_instances": self.settings.models_max,
            "models_autoload": self.service.local().autoloads(),
            "model_alias": "plimsoll",
            "model_path": "none",
            "default_generation_settings": { "params": null, "n_ctx": 0 },
            "ui_settings": {},
            "cors_proxy_enabled": self.service.local().with_flag(&[PROXY_FLAG]).is_some(),
            "build_info": BUILD,
        })
    }

    fn running(&self, head: &Parts) -> Reply<H::Pass> {
        let models = self.service.local().models().into_iter().filter(|model| self.permits(head, *model));
        let listings = models.map(|model| self.service.local().listing(model));
        let running: Vec<Value> =
            listings.filter(|listing| listing.is_running()).map(|listing| listing.as_running()).collect();
        reply::json(&json!({ "running": running }))
    }

    fn load(&self, head: &Parts, model: ModelId) -> Result<Reply<H::Pass>, HttpProblem> {
        let listing = self.service.local().listing(model);
        // DECISION: an order stands on its own. A load that only requests asked for would end with them.
        let is_for_requests =
            matches!(listing.state, ModelState::Queued | ModelState::Loading) && !listing.load_ordered;
        if listing.is_running() && !is_for_requests {
            let (code, message) = match listing.state {
                ModelState::Queued => ("model_running", "model already waits for memory or for its check"),
                ModelState::Loading => ("model_running", "model is already loading"),
                ModelState::Draining | ModelState::Stopping => {
                    ("model_leaves", "model is about to be unloaded; load it again afterwards")
                }
                // The status and the words of llama-server's router (b10605).
                _ => ("model_running", "model is already running"),
            };
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, code, message));
        }
        self.audit(head, "load", &listing.name);
        self.service.local().load(model);
        Ok(success())
    }

    fn unload(&self, head: &Parts, model: ModelId) -> Result<Reply<H::Pass>, HttpProblem> {
        let listing = self.service.local().listing(model);
        if !listing.is_running() {
            let message = "model is not running";
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "model_not_running", message));
        }
        self.audit(head, "unload", &listing.name);
        let is_pinned = self.is_pinned(model);
        self.service.local().unload(model);
        if is_pinned {
            let note = "the model stays pinned: once it is loaded again, no other model displaces it";
            return Ok(reply::json(&json!({ "success": true, "pinned": true, "note": note })));
        }
        Ok(success())
    }

    fn is_pinned(&self, model: ModelId) -> bool {
        self.service.local().snapshot().models.iter().any(|view| view.id == model && view.pinned)
    }

    /// `?for=SECONDS` limits the pin.
    fn pin(&self, head: &Parts, model: ModelId) -> Result<Reply<H::Pass>, HttpProblem> {
        let time = query::parameter(head.uri.query(), "for").map(|text| {
            let seconds = text.parse().ok().filter(|seconds: &u32| *seconds > 0);
            let message = "`for` must be a number of seconds from 1 to 4294967295";
            seconds.ok_or_else(|| HttpProblem::new(StatusCode::BAD_REQUEST, "bad_time", message))
        });
        let time = time.transpose()?.map(|seconds| Duration::from_secs(seconds.into()));
        self.audit(head, "pin", &self.service.local().listing(model).name);
        self.service.local().pin(model, time.unwrap_or(Duration::MAX));
        Ok(success())
    }

    fn unpin(&self, head: &Parts, model: ModelId) -> Result<Reply<H::Pass>, HttpProblem> {
        let was_pinned = self.is_pinned(model);
        self.service.local().pin(model, Duration::ZERO);
        if self.is_pinned(model) {
            let message = "the configuration pins the model (`pin = true`)";
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "pinned_by_configuration", message));
        }
        // Afterwards, because a pin of the configuration stays.
        if was_pinned {
            self.audit(head, "unpin", &self.service.local().listing(model).name);
        }
        Ok(success())
    }

    async fn what_if(&self, head: &Parts) -> Result<Reply<H::Pass>, HttpProblem> {
        if let Some(size) = what_if::kept_free(head.uri.query())? {
            let card = query::parameter(head.uri.query(), "card");
            return Ok(reply::json(&self.service.local().what_if_kept_free(card.as_deref(), size)?));
        }
        let flags = what_if::flags(head.uri.query())?;
        let name = query::parameter(head.uri.query(), "model").unwrap_or_default();
        let model = self.find_model(head, &name)?;
        let answer = self.service.local().what_if(model, flags).await?;
        Ok(reply::json(&without_engine_words(answer)))
    }

    fn unload_all(&self, head: &Parts) -> Reply<H::Pass> {
        for model in self.service.local().models().into_iter().filter(|model| self.permits(head, *model)) {
            // One that does not run needs no unload.
            let _ = self.unload(head, model);
        }
        // llama-swap answers with this text.
        reply::text(TEXT, "OK")
    }

    fn log_stream(&self, rest: &str, head: &Parts) -> Result<Reply<H::Pass>, HttpProblem> {
        let model = match rest.trim_matches('/') {
            "" => None,
            name => Some(self.named_in_path(head, name)?),
        };
        // llama-swap's parameter, with or without a value.
        let with_history = query::parameter(head.uri.query(), "no-history").is_none();
        let mut stream = logs::stream(&self.service.local().log(model), with_history);
        let ending = model.map_or_else(|| self.ending(head), |model| self.ending_of(head, model));
        Ok(reply::feed(TEXT, ending, move |cx| stream.poll_next(cx)))
    }

    /// This server's metrics, and behind them those of loaded engines, which have the time of one question
    /// together. `?model=` has those of one engine as it writes them.
    async fn metrics(&self) -> Reply<H::Pass> {
        let mut page = Exposition::default();
        self.tally.write(&mut page, &self.service.local().snapshot());
        self.wrong_keys.write(&mut page);
        self.settings.keys.write(&mut page);
        self.service.local().write_metrics(&mut page);
        memory_page::write(&mut page, &self.service.local().document());
        let mut text = page.finish();
        let models = self.service.local().models();
        let loaded = models.iter().filter_map(|model| Some((*model, self.service.local().upstream(*model)?)));
        let mut requested = JoinSet::new();
        for (model, upstream) in loaded {
            let name = self.service.local().listing(model).name;
            requested.spawn_local(async move {
                (name, engine_page::ask(&upstream, Method::GET, "/metrics", "").await)
            });
        }
        let mut answers = requested.join_all().await;
        answers.order_by(|(one, _), (other, _)| one.cmp(other));
        let (mut engines, mut start) = (EngineMetrics::default(), None);
        for (name, page) in answers.iter().filter_map(|(name, page)| Some((name, page.as_ref()?))) {
            if let Ok(of_engine) = str::from_utf8(page.body()) {
                let is_only = models.len() == 1;
                engines.add((!is_only).then_some(name.as_str()), of_engine);
                start = page.headers().get(engine_page::PROCESS_START).filter(|_| is_only).cloned();
            }
        }
        text.push_str(&engines.finish());
        let mut reply = reply::text(METRICS, text);
        reply.headers_mut().extend(start.map(|start| (engine_page::PROCESS_START, start)));
        reply
    }

    fn named_in_path(&self, head: &Parts, name: &str) -> Result<ModelId, HttpProblem> {
        self.find_model(head, &self.name_in_path(head, name)?)
    }

    fn entry_in_path(&self, head: &Parts, name: &str) -> Result<ModelListing, HttpProblem> {
        let name = self.name_in_path(head, name)?;
        Ok(self.service.local().listing(self.find_model(head, &name)?).named(&name))
    }

    /// Names of models hold slashes and colons, so clients encode them in a path.
    fn name_in_path(&self, head: &Parts, name: &str) -> Result<String, HttpProblem> {
        Ok(query::decode_path(name).ok_or_else(|| self.unknown_model(head, name))?.into())
    }
}

fn no_name() -> HttpProblem {
    let message = "model must be a non-empty string";
    HttpProblem::new(StatusCode::BAD_REQUEST, "model_missing", message)
}

fn success<P: super::model_service::Pass>() -> Response<ReplyBody<P>> {
    reply::json(&json!({ "success": true }))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}
