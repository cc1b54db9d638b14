//! Translates Ollama's API (`/api/chat`, `/api/tags` and others) to the engines' OpenAI API and back.
//!
//! `plimsoll_ollama` translates. Requests go to their engine as those of `/v1` do, so admission, limits, logs
//! and metrics are the same.

mod define;
mod listing;
pub(crate) mod progress;
mod pull;
pub(crate) mod stream;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use plimsoll_config::{KeyRight, RequestFilters};
use plimsoll_ollama::answer::{AnswerError, AnswerText, AnswerTimes, PartialAnswer};
use plimsoll_ollama::request::OllamaRequest;
use plimsoll_ollama::{Endpoint, EngineRequest, InvalidRequest, OllamaLines, error_text, options, translate};
use plimsoll_scheduler::{ClientId, ModelId};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::stream::{AfterAnswer, OllamaStream, collect};
use super::access_key::KeyUse;
use super::body::{ClientBody, Received, receive};
use super::filter::{FilteredBody, filtered};
use super::model_key::ModelKey;
use super::model_service::{ModelService, Pass, RequestRouter, RouteOptions};
use super::prompt::RequestPrompt;
use super::proxy::{ProxyRequest, WrittenBytes};
use super::reply::{self, Reply, ReplyBody};
use super::rope::Rope;
use super::server::HttpServer;
use super::stream::Relay;
use super::{HttpProblem, headers};
use plimsoll_task::spawn_blocking;

/// The tag of a name that has none.
const LATEST: &str = ":latest";
/// Longest answer that is translated as a whole: embeddings of a thousand texts.
const MOST_ANSWER: usize = 64 * 1024 * 1024;
/// A body up to this size is translated within a millisecond, and so is an answer. A longer refusal of an
/// engine is ignored.
const SMALL: usize = 256 * 1024;
/// Translations of larger bodies and answers at once, because each holds a copy.
static LARGE_BODIES: Semaphore = Semaphore::const_new(2);
/// A model that is to leave within this time is as good as unloaded, which the log says.
const SOON: Duration = Duration::from_secs(60);
/// Differing contexts that the log names.
const MOST_REPORTED: usize = 256;

/// Task of a request, once it was read.
struct OllamaTask {
    model: ModelId,
    /// The model's name as the client wrote it.
    written: String,
    streams: bool,
    keep: Option<Duration>,
    context: Option<u64>,
    /// `None` for a request without a prompt.
    request: Option<EngineRequest>,
}

/// Contexts that clients asked for and the log has named.
pub(crate) type ReportedContexts = RefCell<HashSet<(ModelId, u64)>>;

fn refused(message: String) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, "bad_request", message)
}

impl From<InvalidRequest> for HttpProblem {
    fn from(InvalidRequest(message): InvalidRequest) -> Self {
        refused(message)
    }
}

impl<H: RequestRouter> HttpServer<H> {
    /// Sends a request of Ollama's API to its engine, and translates the answer.
    pub(super) async fn ollama(
        self: &Rc<Self>,
        endpoint: Endpoint,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let requested = Instant::now();
        let mut received = receive(body, &self.bodies, &self.settings.limits).await?;
        let client = received.client;
        let task = self.read(endpoint, &head, &mut received).await?;
        self.report_context(&task);
        let unloads = task.request.is_none() && task.keep == Some(Duration::ZERO);
        if unloads {
            self.needs_right(&head, KeyRight::Change)?;
        }
        let after = self.after(&head, &task);
        let partial = PartialAnswer::new(endpoint, task.written);
        let Some(request) = task.request else {
            if !unloads {
                self.load_and_wait(task.model, &head, client).await?;
            }
            return Ok(reply::json(&loaded(&partial, endpoint, unloads)));
        };
        let request = self.engine_request(head, request, received)?;
        // Its streams are lines of JSON, which have no comments for a client that waits.
        let waits = Rc::new(Cell::new(true));
        let mut answer = Rc::clone(self).exchange(task.model, Rc::new(request), waits).await?;
        let first_byte = requested.elapsed();
        let status = answer.status();
        let is_stream = status.is_success() && headers::is_event_stream(answer.headers());
        if task.streams && is_stream {
            return Ok(streamed(answer, OllamaLines::new(partial, requested, first_byte), after));
        }
        let most = if status.is_success() { MOST_ANSWER } else { SMALL };
        let share = self.bodies.begin(client);
        let whole = collect(answer.body_mut(), most, &share, &self.settings.limits).await?;
        let times = AnswerTimes { now: Timestamp::now(), total: requested.elapsed(), first_byte };
        if !status.is_success() {
            let embeds = matches!(endpoint, Endpoint::Embed | Endpoint::Embeddings);
            return Err(match status {
                // llama-server's answer without the flag.
                StatusCode::NOT_IMPLEMENTED if embeds => no_embeddings(partial.model()),
                _ => engine_refused(status, &whole),
            });
        }
        let length = whole.len();
        let work = move || whole_answer(endpoint, partial, &whole, times, task.streams);
        let (kind, text) = off_thread(length, work).await?.map_err(|error| bad_gateway(&error))?;
        share.resize(text.len(), &self.settings.limits)?;
        Ok(reply::counted_text(kind, text, share))
    }

    /// Reads and translates a body, and puts the translation in its place.
    async fn read(
        &self,
        endpoint: Endpoint,
        head: &Parts,
        received: &mut Received,
    ) -> Result<OllamaTask, HttpProblem> {
        let length = received.rope.len();
        // The name was found while the body arrived; the rest is read where it stops no stream.
        let key = std::mem::take(&mut received.search).finish(&received.rope);
        let name = key.map(|key| key.name).unwrap_or_default();
        let found = self.ollama_model(head, &name);
        let resolved = found.as_ref().map_or_else(|_| name.clone(), |(_, resolved)| resolved.clone());
        let model = found.map(|(model, _)| model);
        let engine_name =
            model.as_ref().map(|model| self.service.local().listing(*model).name).unwrap_or_default();
        let rope = received.rope.clone();
        let filters = model.as_ref().ok().and_then(|model| self.service.local().filters(*model));
        let work = move || {
            let body = rope.copy(0..length);
            let request = OllamaRequest::read(&body)?;
            if request.model != name {
                return Err(refused("the model name is too long, or is given twice".to_owned()));
            }
            Ok(OllamaTask {
                model: model?,
                written: name,
                streams: request.streams(),
                keep: request.keep()?,
                context: options::context(&request.options),
                request: translate(endpoint, &request, &engine_name)?
                    .map(|translated| after_filters(translated, filters.as_ref(), &resolved)),
            })
        };
        off_thread(length, work).await?
    }

    /// Finds a model for a client that may use it, and its name here: clients of Ollama add a tag and the
    /// hub.
    fn ollama_model(&self, head: &Parts, name: &str) -> Result<(ModelId, String), HttpProblem> {
        // The configuration may have the tag where the client leaves it out.
        let tagged = match name.strip_suffix(LATEST) {
            Some(plain) => plain.to_owned(),
            None => format!("{name}{LATEST}"),
        };
        let mut names = [name, tagged.as_str(), pull::on_hub(name)].into_iter();
        let found = names.find_map(|name| Some((self.service.local().resolve(name)?, name.to_owned())));
        let (model, name) = found.ok_or_else(|| self.unknown_model(head, name))?;
        Ok((self.permitted(head, model)?, name))
    }

    fn engine_request(
        &self,
        mut head: Parts,
        request: EngineRequest,
        mut received: Received,
    ) -> Result<ProxyRequest, HttpProblem> {
        let name = self.ollama_name(&request);
        received.replace(Rope::from(bytes::Bytes::from(request.body)), &self.settings.limits)?;
        head.method = Method::POST;
        head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let target = PathAndQuery::from_static(request.path);
        let named = Some((ModelKey { name, place: request.name }, WrittenBytes::Json));
        Ok(ProxyRequest {
            head,
            target,
            received,
            named,
            upgrades: false,
            access: RefCell::default(),
            owns_origin: false,
            is_of_page: false,
            holds_head: true,
            key_use: RefCell::default(),
        })
    }

    fn ollama_name(&self, request: &EngineRequest) -> String {
        serde_json::from_slice(&request.body[request.name.clone()]).unwrap_or_default()
    }

    /// Loads the model as a request would, and waits for it.
    async fn load_and_wait(&self, model: ModelId, head: &Parts, client: ClientId) -> Result<(), HttpProblem> {
        let empty = Rope::default();
        // The prompt of a path that takes no tokens.
        let prompt = RequestPrompt { method: &Method::GET, path: "/health", body: &empty };
        let key_use = self.enter(model, head, 0)?;
        let priority = key_use.as_ref().map(KeyUse::priority).unwrap_or_default();
        let options = RouteOptions { client, priority, ..RouteOptions::default() };
        let mut pass = Rc::clone(&self.service).admit(model, options, prompt).await?;
        pass.answers(StatusCode::OK, prompt.path);
        pass.finished(None);
        Ok(())
    }

    /// Sets the model's time to live when the answer is over. As with Ollama the last request decides.
    ///
    /// DECISION: a time below the configured one is an unload, later or at once, and needs the right to it.
    /// Without the right the model stays as long as configured.
    fn after(&self, head: &Parts, task: &OllamaTask) -> AfterAnswer {
        let (service, model, mut time) = (Rc::clone(&self.service), task.model, task.keep);
        let listing = service.local().listing(model);
        if let Some(shorter) = time.filter(|time| *time < listing.ttl.unwrap_or(Duration::MAX)) {
            if !self.has_right(head, KeyRight::Change) {
                time = None;
            } else if shorter < SOON {
                self.audit(head, &format!("unload after {} s", shorter.as_secs_f64()), &listing.name);
            }
        }
        AfterAnswer::new(move || service.local().keep(model, time))
    }

    /// DECISION: `num_ctx` is not followed: the context is part of the claim, and one client's option would
    /// reload the model of all others. The log names each differing one once.
    fn report_context(&self, task: &OllamaTask) {
        let Some(wanted) = task.context else { return };
        let listing = self.service.local().listing(task.model);
        let Some(context) = listing.context().filter(|context| *context != wanted) else { return };
        let mut reported = self.reported_contexts.borrow_mut();
        if reported.len() < MOST_REPORTED && reported.insert((task.model, wanted)) {
            tracing::info!(
                "{}  a client asks for a context of {wanted} tokens (num_ctx), but the configuration \
                    gives a request {context}",
                listing.name
            );
        }
    }
}

/// The same after the model's filters, for a client that named the model so.
fn after_filters(request: EngineRequest, filters: Option<&Arc<RequestFilters>>, name: &str) -> EngineRequest {
    match filters.and_then(|filters| filtered(&request.body, filters, name)) {
        Some(FilteredBody { body, model: Some(name) }) => EngineRequest { body, name, ..request },
        _ => request,
    }
}

/// The answer to a request that only loads or unloads.
fn loaded(partial: &PartialAnswer, endpoint: Endpoint, unloads: bool) -> Value {
    let none = Duration::ZERO;
    let times = AnswerTimes { now: Timestamp::now(), total: none, first_byte: none };
    match endpoint {
        Endpoint::Embed => json!({ "model": partial.model(), "embeddings": [] }),
        Endpoint::Embeddings => json!({ "embedding": [] }),
        Endpoint::Chat | Endpoint::Generate => {
            let mut answer = partial.piece(&AnswerText::default(), times);
            answer["done"] = json!(true);
            answer["done_reason"] = json!(if unloads { "unload" } else { "load" });
            answer
        }
    }
}

fn streamed<P: Pass>(answer: Response<Relay<P>>, lines: OllamaLines, after: AfterAnswer) -> Reply<P> {
    let (mut head, relay) = answer.into_parts();
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(listing::LINES));
    // The translation has another length.
    head.headers.remove(http::header::CONTENT_LENGTH);
    headers::forbid_buffering(&mut head.headers);
    Response::from_parts(head, ReplyBody::Ollama(Box::new(OllamaStream::new(relay, lines, after))))
}

/// Runs `work` on so many bytes: on another thread where the one that serves would stand still for it.
pub(super) async fn off_thread<T: Send + 'static>(
    length: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HttpProblem> {
    if length <= SMALL {
        return Ok(work());
    }
    let _place = LARGE_BODIES.acquire().await;
    spawn_blocking(work).await.map_err(|error| {
        HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "translation_failed", error.to_string())
    })
}

/// The type and the text of the answer that the client gets.
fn whole_answer(
    endpoint: Endpoint,
    mut partial: PartialAnswer,
    body: &[u8],
    times: AnswerTimes,
    streams: bool,
) -> Result<(&'static str, String), AnswerError> {
    Ok(match endpoint {
        Endpoint::Embed | Endpoint::Embeddings => (listing::JSON, partial.embeddings(body, times)?),
        Endpoint::Chat | Endpoint::Generate => {
            let text = partial.take(body)?;
            let whole = partial.whole(&text, times)?.to_string();
            // An engine that does not stream gives a stream of one line.
            if streams { (listing::LINES, whole + "\n") } else { (listing::JSON, whole) }
        }
    })
}

fn bad_gateway(error: &AnswerError) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_GATEWAY, "bad_answer", error.to_string())
}

fn no_embeddings(model: &str) -> HttpProblem {
    let message = format!(
        "\"{model}\" does not support embeddings: its engine runs without `--embeddings`; give a model of its own that flag, \
            and name it here"
    );
    HttpProblem::new(StatusCode::NOT_IMPLEMENTED, "no_embeddings", message)
}

/// An engine's refusal, with its status and its words.
fn engine_refused(status: StatusCode, body: &[u8]) -> HttpProblem {
    // 1xx and 3xx are no refusals, and a client would follow or wait.
    let status =
        if status.is_client_error() || status.is_server_error() { status } else { StatusCode::BAD_GATEWAY };
    HttpProblem::new(status, "engine_refused", error_text(body))
}
