//! Endpoints that the daemon answers itself: listings, load and unload, logs, metrics and status.
//!
//! They follow llama-server's router (`/models`), llama-swap (`/running`, `/unload`, `/logs`) and Plimsoll's
//! own API (`/api/status`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use plimsoll_scheduler::ModelId;
use serde_json::{Value, json};

use super::api::{self, Own};
use super::engine_page;
use super::exposition::Exposition;
use super::listing::ModelListing;
use super::logs;
use super::model_service::ModelService;
use super::ollama;
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

impl<H: ModelService> HttpServer<H> {
    pub(crate) async fn own(
        &self,
        own: Own,
        rest: &str,
        head: &Parts,
        body: Incoming,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        Ok(match own {
            Own::Index => reply::text(TEXT, api::index()),
            Own::Page(file) => page::answer(file),
            Own::Health => reply::json(&json!({ "status": "ok" })),
            // Ollama's clients compare the first.
            Own::Version => reply::json(&json!({
                "version": ollama::VERSION, "name": "plimsoll", "plimsoll": env!("CARGO_PKG_VERSION"),
            })),
            Own::Ollama(listing) => self.ollama_listing(listing, body).await?,
            Own::LmStudioModels => {
                let listed = self.listed().map(|listing| listing.as_lm_studio());
                reply::json(&json!({ "object": "list", "data": listed.collect::<Vec<Value>>() }))
            }
            Own::LmStudioModel => {
                reply::json(&self.service.listing(self.named_in_path(rest)?).as_lm_studio())
            }
            Own::Props => reply::json(&self.props()),
            Own::Models => self.models(head).await?,
            Own::Model => reply::json(&self.listing(&self.named_in_path(rest)?)),
            Own::Load => self.load(self.receive_model(head, body).await?)?,
            Own::Unload => self.unload(self.receive_model(head, body).await?)?,
            Own::Pin => self.pin(head, self.receive_model(head, body).await?)?,
            Own::Unpin => self.unpin(self.receive_model(head, body).await?)?,
            Own::ModelEvents => {
                reply::feed(EVENTS, ReplyBody::Feed(self.service.events().listen_to_models(), self.ending()))
            }
            Own::Running => self.running(),
            Own::UnloadAll => self.unload_all(),
            Own::UnloadNamed => self.unload(self.named_in_path(rest)?)?,
            Own::Logs => reply::text(TEXT, logs::tail(&self.service.log(None))),
            Own::LogStream => self.log_stream(rest, head)?,
            Own::Metrics => self.metrics().await,
            // A reason may quote an engine's log, and with it another client's prompt.
            Own::Status => {
                let mut status = without_engine_words(self.service.document());
                status["requests"] = self.service.requests();
                reply::json(&status)
            }
            Own::WhatIf => self.what_if(head).await?,
            Own::Yields => self.yields(),
            Own::Yield => self.give_way(body).await?,
            Own::EndYield => self.end_yield(head)?,
            Own::StatusStream => {
                let listener = self.service.events().listen_to_snapshots(self.service.document());
                reply::feed(EVENTS, ReplyBody::Feed(listener, self.ending()))
            }
        })
    }

    /// `?reload` with anything reads the configuration again first, as llama-server's router does.
    async fn models(&self, head: &Parts) -> Result<Reply<H::Pass>, HttpProblem> {
        if query::parameter(head.uri.query(), "reload").is_some() {
            self.service.reload().await?;
        }
        // llama-server reports the time of the answer here as well.
        let created = now();
        let models: Vec<Value> = self.listed().map(|listing| listing.as_model(created)).collect();
        Ok(reply::json(&json!({ "object": "list", "data": models })))
    }

    /// The models that listings show.
    pub(super) fn listed(&self) -> impl Iterator<Item = ModelListing> {
        let all = self.service.models().into_iter().map(|model| self.service.listing(model));
        all.filter(|listing| !listing.unlisted)
    }

    /// The properties that llama-server's router reports; its web page reads them.
    fn props(&self) -> Value {
        json!({
            "role": "router",
            // Memory limits the models that are loaded at once, and no count; 0 says so in llama-server.
            "max_instances": 0,
            "models_autoload": self.service.autoloads(),
            "model_alias": "plimsoll",
            "model_path": "none",
            "default_generation_settings": { "params": null, "n_ctx": 0 },
            "ui_settings": {},
            "cors_proxy_enabled": self.service.with_flag(&[PROXY_FLAG]).is_some(),
            "build_info": concat!("plimsoll ", env!("CARGO_PKG_VERSION")),
        })
    }

    fn listing(&self, model: &ModelId) -> Value {
        self.service.listing(*model).as_model(now())
    }

    fn running(&self) -> Reply<H::Pass> {
        let listings = self.service.models().into_iter().map(|model| self.service.listing(model));
        let running: Vec<Value> =
            listings.filter(|listing| listing.is_running()).map(|listing| listing.as_running()).collect();
        reply::json(&json!({ "running": running }))
    }

    fn load(&self, model: ModelId) -> Result<Reply<H::Pass>, HttpProblem> {
        if self.service.listing(model).is_running() {
            // The status and the words of llama-server's router (b10605).
            let message = "model is already running";
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "model_running", message));
        }
        self.service.load(model);
        Ok(success())
    }

    fn unload(&self, model: ModelId) -> Result<Reply<H::Pass>, HttpProblem> {
        if !self.service.listing(model).is_running() {
            let message = "model is not running";
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "model_not_running", message));
        }
        self.service.unload(model);
        Ok(success())
    }

    /// `?for=SECONDS` limits the pin.
    fn pin(&self, head: &Parts, model: ModelId) -> Result<Reply<H::Pass>, HttpProblem> {
        let time = query::parameter(head.uri.query(), "for").map(|text| {
            let seconds = text.parse().ok().filter(|seconds: &u32| *seconds > 0);
            let message = "`for` is no number of seconds from 1 to 4294967295";
            seconds.ok_or_else(|| HttpProblem::new(StatusCode::BAD_REQUEST, "bad_time", message))
        });
        let time = time.transpose()?.map(|seconds| Duration::from_secs(seconds.into()));
        self.service.pin(model, time.unwrap_or(Duration::MAX));
        Ok(success())
    }

    fn unpin(&self, model: ModelId) -> Result<Reply<H::Pass>, HttpProblem> {
        self.service.pin(model, Duration::ZERO);
        let snapshot = self.service.snapshot();
        if snapshot.models.iter().any(|view| view.id == model && view.pinned) {
            let message = "the configuration pins the model (`pin = true`)";
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "pinned_by_configuration", message));
        }
        Ok(success())
    }

    async fn what_if(&self, head: &Parts) -> Result<Reply<H::Pass>, HttpProblem> {
        let flags = what_if::flags(head.uri.query())?;
        let name = query::parameter(head.uri.query(), "model").unwrap_or_default();
        let model = self.service.resolve(&name).ok_or_else(|| self.unknown_model(&name))?;
        let answer = self.service.what_if(model, flags).await?;
        Ok(reply::json(&without_engine_words(answer)))
    }

    fn unload_all(&self) -> Reply<H::Pass> {
        for model in self.service.models() {
            if self.service.listing(model).is_running() {
                self.service.unload(model);
            }
        }
        // llama-swap answers with this text.
        reply::text(TEXT, "OK")
    }

    fn log_stream(&self, rest: &str, head: &Parts) -> Result<Reply<H::Pass>, HttpProblem> {
        let model = match rest.trim_matches('/') {
            "" => None,
            name => Some(self.named_in_path(name)?),
        };
        // llama-swap's parameter, with or without a value.
        let with_history = query::parameter(head.uri.query(), "no-history").is_none();
        let stream = logs::stream(&self.service.log(model), with_history);
        Ok(reply::feed(TEXT, ReplyBody::Log(stream, self.ending())))
    }

    /// This server's metrics, and behind them those of the only model's engine. With several models the engines'
    /// metrics would share their names; `?model=` has those of one.
    async fn metrics(&self) -> Reply<H::Pass> {
        let mut page = Exposition::default();
        self.tally.write(&mut page, &self.service.snapshot());
        self.wrong_keys.write(&mut page);
        self.service.write_metrics(&mut page);
        let mut text = page.finish();
        let upstream = match self.service.models()[..] {
            [only] => self.service.upstream(only),
            _ => None,
        };
        let mut start = None;
        if let Some(upstream) = upstream
            && let Some(page) = engine_page::ask(&upstream, Method::GET, "/metrics", "").await
            && let Ok(of_engine) = str::from_utf8(&page.body)
        {
            text.push_str(of_engine);
            start = page.headers.get(engine_page::PROCESS_START).cloned();
        }
        let mut reply = reply::text(METRICS, text);
        reply.headers_mut().extend(start.map(|start| (engine_page::PROCESS_START, start)));
        reply
    }

    fn named_in_path(&self, name: &str) -> Result<ModelId, HttpProblem> {
        // Names of models hold slashes and colons, so clients encode them in a path.
        let decoded = query::decode_path(name);
        let model = decoded.and_then(|name| self.service.resolve(&name));
        model.ok_or_else(|| self.unknown_model(name))
    }
}

fn success<P: super::model_service::Pass>() -> Response<ReplyBody<P>> {
    reply::json(&json!({ "success": true }))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}
