//! Dispatch of HTTP requests: checks of API keys and origins, then routing to an engine or to the daemon's
//! own endpoints.

use std::borrow::Cow;
use std::convert::Infallible;
use std::mem;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, ORIGIN, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use plimsoll_base::{Advice, Hint};
use plimsoll_scheduler::{ClientId, ModelId};
use tokio::sync::watch;

use super::api::{self, Action, RouteMissing};
use super::auth::ApiKeys;
use super::body::{BodyBudget, Received, receive};
use super::connection::ClientConnection;
use super::cors::Origins;
use super::feed::Ending;
use super::limits::Limits;
use super::model_key::ModelKey;
use super::model_service::{ModelService, RouteOptions};
use super::problem::HttpProblem;
use super::proxy::{self, ProxyRequest, WrittenBytes};
use super::reply::{self, Reply, ReplyBody};
use super::stream::BrokenAnswer;
use super::tally::TokenTally;
use super::{headers, multipart, query};

/// Settings of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpSettings {
    pub(crate) keys: ApiKeys,
    pub(crate) origins: Origins,
    pub(crate) limits: Limits,
}

#[derive(Debug)]
pub(crate) struct HttpServer<H: ModelService> {
    pub(crate) service: Rc<H>,
    pub(crate) settings: HttpSettings,
    pub(crate) bodies: BodyBudget,
    pub(crate) tally: TokenTally,
    is_ending: watch::Sender<bool>,
    /// Name of this machine, which browsers of the local network may use for it.
    hostname: String,
}

impl<H: ModelService> HttpServer<H> {
    pub(crate) fn new(service: Rc<H>, settings: HttpSettings) -> Self {
        Self {
            service,
            settings,
            bodies: BodyBudget::default(),
            tally: TokenTally::default(),
            is_ending: watch::Sender::new(false),
            // Without one only `localhost`, addresses and allowed origins are left.
            hostname: std::fs::read_to_string("/proc/sys/kernel/hostname")
                .unwrap_or_default()
                .trim()
                .to_owned(),
        }
    }

    /// Answers one request of `client`; a failure is an answer too.
    pub(crate) async fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
        client: Rc<ClientConnection>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = BrokenAnswer> + use<H>>, Infallible> {
        let in_use = client.begin();
        let origin = request.headers().get(ORIGIN).cloned();
        let admitted = self.settings.keys.admit(request.headers());
        client.has_key.set(admitted);
        let mut reply = match self.dispatch(request, admitted, client.client).await {
            Ok(reply) => reply,
            Err(problem) => reply::problem(&problem),
        };
        self.settings.origins.grant(origin.as_ref(), reply.headers_mut());
        // The next request of this connection may be for another model, or for none.
        client.limit_stalls(reply.body().stall_limit());
        // The body carries the mark, because hyper drops it once it has been sent.
        Ok(reply.map(|body| {
            body.map_err(move |error| {
                let _mark = &in_use;
                error
            })
        }))
    }

    async fn dispatch(
        &self,
        request: Request<Incoming>,
        admitted: bool,
        client: ClientId,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let (head, body) = request.into_parts();
        // Browsers send preflights without a key, and they change nothing.
        if head.method == Method::OPTIONS {
            let mut reply = reply::empty(StatusCode::NO_CONTENT);
            Origins::preflight(&head.headers, reply.headers_mut());
            return Ok(reply);
        }
        // Any page can make its own name point here (DNS rebinding), and the browser then takes it for this
        // server's own. A key is what such a page lacks; without keys the name must be one that only this
        // machine has.
        let origins = &self.settings.origins;
        if self.settings.keys.is_empty() && !origins.permit_host(&head.headers, &self.hostname) {
            return Err(foreign_host());
        }
        // Copied, because `head` is moved while the route still refers to the path.
        let path = head.uri.path().to_owned();
        let found = match api::find(&head.method, &path) {
            Ok(found) => found,
            Err(missing) => return Ok(no_route(&path, missing)),
        };
        if !found.action.is_public() && !admitted {
            return Err(wrong_key());
        }
        let changes = found.action.changes(&head.method, head.uri.query());
        if !origins.permit(changes, &head.headers) {
            return Err(foreign_page());
        }
        match found.action {
            Action::Engine => self.to_engine(head, body, client).await,
            Action::EngineOr(_) if query::parameter(head.uri.query(), "model").is_some() => {
                self.to_engine(head, body, client).await
            }
            Action::Upstream => self.upstream(found.rest, head, body, client).await,
            Action::EngineOr(own) | Action::Own(own) => self.own(own, found.rest, &head, body).await,
        }
    }

    /// Ends all feeds: their watchers would keep a server that drains waiting.
    pub(crate) fn end_feeds(&self) {
        self.is_ending.send_replace(true);
    }

    pub(crate) fn ending(&self) -> Ending {
        Ending::new(self.is_ending.subscribe())
    }

    /// Sends a request to the engine of the model that it names.
    async fn to_engine(
        &self,
        head: Parts,
        body: Incoming,
        client: ClientId,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let mut received = receive(body, &self.bodies, &self.settings.limits).await?;
        let named = named_in_body(&head, &mut received);
        let model = self.model_of(&head, named.as_ref().map(|(named, _)| named))?;
        let target = head.uri.path_and_query().cloned();
        let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
        self.carry(model, ProxyRequest { head, target, client, received, named, holds_head: true }).await
    }

    /// Finds the model named in the body, or else in `?model=`.
    fn model_of(&self, head: &Parts, named: Option<&ModelKey>) -> Result<ModelId, HttpProblem> {
        let in_body = named.map(|named| Cow::Borrowed(named.name.as_str()));
        let name = in_body
            .filter(|name| !name.is_empty())
            .or_else(|| query::parameter(head.uri.query(), "model"))
            .filter(|name| !name.is_empty())
            .ok_or_else(|| match head.headers.contains_key(CONTENT_ENCODING) {
                // The name may be there and unreadable: bodies are searched as they came, never decompressed.
                true => compressed(),
                false => self.no_model_named(),
            })?;
        self.service.resolve(&name).ok_or_else(|| self.unknown_model(&name))
    }

    /// Reads an order about a model: `{"model":…}`.
    pub(crate) async fn receive_model(&self, head: &Parts, body: Incoming) -> Result<ModelId, HttpProblem> {
        let mut received = receive(body, &self.bodies, &self.settings.limits).await?;
        let named = named_in_body(head, &mut received);
        self.model_of(head, named.as_ref().map(|(named, _)| named))
    }

    /// `/upstream/<model>/<path>`: the model's name may hold slashes, so the longest name that is one wins.
    async fn upstream(
        &self,
        rest: &str,
        head: Parts,
        body: Incoming,
        client: ClientId,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        // The engine's connection is plain HTTP/1.1 with one request at a time, which an upgrade would take
        // over.
        if head.headers.contains_key(UPGRADE) {
            return Err(no_upgrade());
        }
        let (model, path) = self.split_upstream(rest).ok_or_else(|| self.unknown_model(rest))?;
        let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("/{path}{query}").parse();
        let target = target.unwrap_or_else(|_| PathAndQuery::from_static("/"));
        let received = receive(body, &self.bodies, &self.settings.limits).await?;
        self.carry(
            model,
            ProxyRequest {
                head,
                target,
                client,
                received,
                // The path names the model here, so the engine gets the body unchanged.
                named: None,
                holds_head: false,
            },
        )
        .await
    }

    fn split_upstream<'a>(&self, rest: &'a str) -> Option<(ModelId, &'a str)> {
        // Names of models may hold slashes; up to fifteen are looked for.
        let ends = rest.match_indices('/').map(|(at, _)| at).chain([rest.len()]);
        let splits: Vec<usize> = ends.take(16).collect();
        splits.into_iter().rev().find_map(|end| {
            let name = query::decode_path(&rest[..end])?;
            let model = self.service.resolve(&name)?;
            Some((model, rest[end..].trim_start_matches('/')))
        })
    }

    async fn carry(&self, model: ModelId, request: ProxyRequest) -> Result<Reply<H::Pass>, HttpProblem> {
        let autoload = query::parameter(request.head.uri.query(), "autoload");
        let wish = RouteOptions {
            autoload: autoload.map(|wanted| matches!(&*wanted, "true" | "1")),
            client: request.client,
        };
        // Taken before admission: the time to the first byte includes the wait for the model.
        let asked = Instant::now();
        let answer = self.admitted(model, wish, request).await;
        // Refusals count as well: they are what a client sees of the model.
        let status = answer.as_ref().map_or_else(|problem| problem.status, Response::status);
        self.tally.count(model, status, asked.elapsed());
        answer
    }

    async fn admitted(
        &self,
        model: ModelId,
        wish: RouteOptions,
        request: ProxyRequest,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let pass = Rc::clone(&self.service).admit(model, wish, request.prompt()).await?;
        let answer = proxy::carry(request, pass, &self.settings.limits).await?;
        Ok(answer.map(ReplyBody::Relay))
    }

    fn no_model_named(&self) -> HttpProblem {
        let message = "model name is missing from the request";
        HttpProblem::new(StatusCode::BAD_REQUEST, "model_missing", message).hint(self.names())
    }

    pub(crate) fn unknown_model(&self, name: &str) -> HttpProblem {
        let message = format!("model '{name}' not found");
        HttpProblem::new(StatusCode::NOT_FOUND, "model_not_found", message).hint(self.names())
    }

    fn names(&self) -> Hint {
        let names = self.service.names().join(", ");
        Hint::new(Advice::Other(format!("name one of these models: {names}")))
    }
}

fn named_in_body(head: &Parts, received: &mut Received) -> Option<(ModelKey, WrittenBytes)> {
    let kind = headers::text(&head.headers, &CONTENT_TYPE);
    if let Some(boundary) = kind.and_then(multipart::boundary) {
        return multipart::model(&received.rope, boundary).map(|named| (named, WrittenBytes::Plain));
    }
    // `finish` consumes the walk, while the body goes on to the engine.
    mem::take(&mut received.search).finish(&received.rope).map(|named| (named, WrittenBytes::Json))
}

fn no_route<P: super::model_service::Pass>(path: &str, missing: RouteMissing) -> Reply<P> {
    match missing {
        RouteMissing::Path => {
            let message = format!("no such path: {path}");
            reply::problem(&HttpProblem::new(StatusCode::NOT_FOUND, "no_route", message))
        }
        RouteMissing::Method(methods) => {
            let methods = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("{path} takes {methods}");
            let problem = HttpProblem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message);
            let mut reply = reply::problem(&problem);
            if let Ok(methods) = HeaderValue::from_str(&methods) {
                reply.headers_mut().insert(ALLOW, methods);
            }
            reply
        }
    }
}

fn wrong_key() -> HttpProblem {
    let message = "the request contains no valid API key";
    HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
}

fn foreign_page() -> HttpProblem {
    let message = "a web page from another origin may not send this request";
    HttpProblem::new(StatusCode::FORBIDDEN, "foreign_origin", message)
        .hint(Hint::new(Advice::Other("to allow the page, pass --allow-origin with its origin".to_owned())))
}

fn foreign_host() -> HttpProblem {
    let message = "the Host header does not name this machine";
    HttpProblem::new(StatusCode::FORBIDDEN, "foreign_host", message).hint(Hint::new(Advice::Other(
        "use localhost, or allow the name with --allow-origin http://NAME:PORT".to_owned(),
    )))
}

fn compressed() -> HttpProblem {
    let message = "the request body is compressed; send it as it is";
    HttpProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "body_compressed", message)
}

fn no_upgrade() -> HttpProblem {
    let message = "connections cannot be upgraded (websockets) through this server";
    HttpProblem::new(StatusCode::NOT_IMPLEMENTED, "no_upgrade", message)
}
