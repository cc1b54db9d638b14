//! Interface between the HTTP server and the runtime that owns the models.
//!
//! To reach an engine, the HTTP server needs a [`Pass`], the permission to send one request. While a pass is
//! held, its engine is not stopped.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::response::Parts as AnswerParts;
use http::{HeaderMap, HeaderValue, StatusCode};
use plimsoll_base::{Bytes, Priority};
use plimsoll_config::RequestFilters;
use plimsoll_fleet::SeatToken;
use plimsoll_hub::DerivedModel;
use plimsoll_log::Log;
use plimsoll_scheduler::{ClientId, ModelId, SchedulerSnapshot};
use serde_json::Value;

use super::connection::StallLimit;
use super::download_order::DownloadOrder;
use super::events::Events;
use super::exposition::Exposition;
use super::feed::FeedListener;
use super::flags_api::FlagsOrder;
use super::host_request::{FileAnswer, FileAnswered, HostRequest};
use super::listing::ModelListing;
use super::problem::HttpProblem;
use super::prompt::RequestPrompt;
use super::tokens::AnswerTokens;
use super::trace_parent::TraceParent;
use super::upstream::Upstream;
use super::what_if::WhatIfError;

/// Options that a request sets about its model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteOptions {
    /// `?autoload=`: whether a model that is not running may be loaded for this; `None` leaves it to the
    /// configuration.
    pub autoload: Option<bool>,
    /// The client that sent the request, as far as clients can be distinguished.
    pub client: ClientId,
    pub priority: Priority,
    /// The client's span, where requests are traced.
    pub parent: Option<TraceParent>,
    /// The token of the seat, if another host of the fleet passed the request on.
    pub hop: Option<SeatToken>,
    /// Time at which the whole request was there, if the caller has read the clock.
    pub requested: Option<Instant>,
}

/// The models of this server, as its own endpoints list and change them.
pub trait ModelService: 'static {
    /// Finds a model by its name or by an alias.
    fn resolve(&self, name: &str) -> Option<ModelId>;

    /// Changes of the model's requests; `None` without any.
    fn filters(&self, _: ModelId) -> Option<Arc<RequestFilters>> {
        None
    }

    /// The model for a request that names none, or the unknown model `name`; `None` refuses the request.
    fn stand_in(&self, name: Option<&str>) -> Option<ModelId>;

    /// The answer to requests for a model that is configured and cannot be served.
    fn refusal(&self, name: &str) -> Option<HttpProblem>;

    /// A model with one of these flags of llama-server; a loaded one if there is any.
    fn with_flag(&self, flags: &[&str]) -> Option<ModelId>;

    /// True if requests are traced.
    fn traces(&self) -> bool {
        false
    }

    /// True if requests load their model unless they say otherwise.
    fn autoloads(&self) -> bool;

    /// Connections to the model's engine, to ask it what needs no admission; `None` if it is not loaded.
    fn upstream(&self, model: ModelId) -> Option<Rc<Upstream>>;

    /// One line that says what a request for the model waits for.
    fn wait_line(&self, model: ModelId) -> String;

    /// All models, in the order in which they are listed.
    fn models(&self) -> Vec<ModelId>;

    fn listing(&self, model: ModelId) -> ModelListing;

    /// True if `fits` holds for the name of the model or for one of its aliases.
    fn is_named(&self, model: ModelId, fits: impl Fn(&str) -> bool) -> bool;

    /// Loads a model without a request; it is known not to run.
    fn load(&self, model: ModelId);

    /// Unloads a model; requests in flight finish.
    fn unload(&self, model: ModelId);

    /// Keeps the model from being stopped for others or for being idle, for this long; zero ends that.
    fn pin(&self, model: ModelId, time: Duration);

    /// Sets the time to live of the model's run, if it has one; the longest keeps it until another needs the
    /// memory. `None` is the configured time.
    fn keep(&self, model: ModelId, time: Option<Duration>);

    /// Keeps so much of a card free for other programs, for this long; zero bytes end that. Without a card,
    /// the only one is meant, or to end it all are.
    fn give_way(
        &self,
        card: Option<&str>,
        size: Bytes,
        time: Duration,
    ) -> impl Future<Output = Result<(), HttpProblem>>;

    /// Version, process and counters of this server, as JSON.
    fn about(&self) -> Value;

    /// Requests that wait or are being answered, as JSON.
    fn requests(&self) -> Value;

    /// Reads the configuration again; a note for each thing that changed, or that waits for a restart.
    fn reload(&self) -> impl Future<Output = Result<Vec<String>, HttpProblem>>;

    /// Begins the download of a model; it is served when it is complete. Returns what it will take, in words.
    fn download(&self, order: &DownloadOrder) -> impl Future<Output = Result<Option<String>, HttpProblem>>;

    /// True if clients may derive models: the operator has named a folder for them.
    fn derives(&self) -> bool;

    /// Gives a model another name, with changes of its requests; it is served at once.
    fn derive(&self, model: DerivedModel) -> impl Future<Output = Result<(), HttpProblem>>;

    /// Removes a downloaded or derived model, or cancels a download.
    fn remove(&self, name: &str) -> impl Future<Output = Result<(), HttpProblem>>;

    /// Entries of models that are being downloaded, for the list of models.
    fn downloading(&self) -> Vec<Value>;

    fn snapshot(&self) -> SchedulerSnapshot;

    /// Plans the model with these flags over its own; what a load would take and stop, as JSON.
    fn what_if(&self, model: ModelId, flags: Vec<String>)
    -> impl Future<Output = Result<Value, WhatIfError>>;

    /// Shows, plans or changes the flags of a model in the configuration; the answer is JSON.
    fn flags(&self, order: FlagsOrder) -> impl Future<Output = Result<Value, HttpProblem>>;

    /// Models that would leave if so much of a card were kept free, as JSON.
    fn what_if_kept_free(&self, card: Option<&str>, size: Bytes) -> Result<Value, HttpProblem>;

    /// The status document of displays, with the snapshot at its root.
    fn document(&self) -> Value;

    /// The failures of this run and of earlier ones, with the lines of engines that prove their causes, as
    /// JSON.
    fn failures(&self) -> Value;

    fn events(&self) -> &Events;

    /// The log of one model, or of all and of this program.
    fn log(&self, model: Option<ModelId>) -> Log;

    /// Writes the owner's counters: loads, evictions, failures.
    fn write_metrics(&self, page: &mut Exposition);
}

/// The way of requests to models: those of this server, or of another host of its fleet.
pub trait RequestRouter: 'static {
    type Pass: Pass;
    type Local: ModelService;

    fn local(&self) -> &Self::Local;

    /// Request of another host of the fleet; `None` for a request of a client.
    fn hop(&self, _headers: &HeaderMap) -> Option<Result<HostRequest, HttpProblem>> {
        None
    }

    /// News of the fleet, for another host of it.
    fn news(&self) -> Result<FeedListener, HttpProblem> {
        Err(HttpProblem::new(StatusCode::NOT_FOUND, "no_news", "this server is in no fleet"))
    }

    /// The files of a model, or bytes of one, for another host of the fleet.
    fn give_files(&self, _: &Parts) -> FileAnswered {
        Box::pin(async { Err(no_files()) })
    }

    /// Begins to copy the files of a model, as another host of the fleet requests.
    fn copy_files(&self, _: &Parts) -> Result<FileAnswer, HttpProblem> {
        Err(no_files())
    }

    /// This host's name in its fleet.
    fn host_name(&self) -> Option<HeaderValue> {
        None
    }

    /// The pass of a request that need not wait.
    fn admit_at_once(self: &Rc<Self>, model: ModelId, options: RouteOptions) -> Option<Self::Pass>;

    /// Waits until the model may take this request; the depth of `prompt` is determined only if it matters.
    /// Dropping the future gives up the place in the queue.
    fn admit(
        self: Rc<Self>,
        model: ModelId,
        options: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> impl Future<Output = Result<Self::Pass, HttpProblem>>;
}

/// Permission to send one request to one engine. Dropping it gives the request up, because the client has
/// left.
pub trait Pass: Unpin + Sized + 'static {
    fn upstream(&self) -> &Rc<Upstream>;

    /// The time that the client may take nothing of its answer before it is given up. The owner of the models
    /// keeps a clone and shortens it while another request waits for the memory that this one holds.
    fn stall_limit(&self) -> StallLimit {
        StallLimit::default()
    }

    /// True if this answer is no answer: another host of the fleet does not serve the model any more.
    fn is_declined(&self, _: &AnswerParts) -> bool {
        false
    }

    /// The engine's answer to a request for this path begins with this status.
    fn answers(&mut self, _: StatusCode, _path: &str) {}

    /// The answer that has begun is to this request, and may still break off.
    fn note_body(&mut self, _: &RequestPrompt<'_>) {}

    /// A piece of the answer has come from the engine.
    fn yields(&self) {}

    /// The first piece of an event stream is there.
    fn streams(&mut self) {}

    /// Ends the request after a complete answer, with its tokens if the engine reported them.
    fn finished(self, tokens: Option<AnswerTokens>);

    /// Ends an attempt in which the engine closed the connection before a byte of its answer reached the
    /// client. The result is a new pass for another attempt, or the error for the client.
    fn bounced(self, prompt: RequestPrompt<'_>) -> impl Future<Output = Result<Self, HttpProblem>>;

    /// Ends a request whose engine broke off in the middle of its answer. The result is the error for the
    /// client. It should come soon, because the client waits for the last event of its stream.
    fn broke(self) -> Pin<Box<dyn Future<Output = HttpProblem>>>;
}

pub fn no_files() -> HttpProblem {
    HttpProblem::new(
        StatusCode::NOT_FOUND,
        "files_not_shared",
        "this server is in no fleet, so it sends no model files",
    )
}
