//! Dispatches HTTP requests: checks API key and origin, then routes to an engine or to the daemon's own
//! endpoints.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ALLOW, HOST, HeaderValue, ORIGIN};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use plimsoll_base::{Advice, Hint};
use plimsoll_scheduler::ModelId;
use tokio::sync::watch;

use super::api::{self, Action, Own, RouteMatch, RouteMissing};
use super::auth::{ApiKeys, KeyCheck, WrongKeys};
use super::body::{ClientBody, Received, receive};
use super::body_budget::BodyBudget;
use super::connection::{ClientConnection, RequestGuard};
use super::conversations::latest::{self, Conversations};
use super::cors::{self, Origins};
use super::heartbeat::{self, Heartbeat};
use super::limits::Limits;
use super::model_key::ModelKey;
use super::model_service::{ModelService, Pass, RequestRouter};
use super::naming::in_body::named_in_body;
use super::ollama::ReportedContexts;
use super::page;
use super::places::Places;
use super::problem::{ErrorShape, HttpProblem};
use super::proxy::{self, ProxyRequest, WrittenBytes};
use super::query;
use super::reply::{self, Reply, ReplyBody};
use super::stream::{BrokenAnswer, Relay};
use super::tally::TokenTally;
use super::websocket;

/// Flags with which llama-server serves `/tools`, and `/cors-proxy`.
const TOOL_FLAGS: [&str; 3] = ["--tools", "--mcp-servers-config", "--mcp-servers-json"];
pub(crate) const PROXY_FLAG: &str = "--ui-mcp-proxy";

/// Settings of the server.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    pub keys: ApiKeys,
    pub origins: Origins,
    pub limits: Limits,
    /// The most models that are loaded at a time; 0 if memory alone limits them.
    pub models_max: usize,
    /// Time after which a waiting stream gets a comment, and again so long after each; `None` for never.
    pub heartbeat: Option<Duration>,
}

#[derive(Debug)]
pub struct HttpServer<H: RequestRouter> {
    pub service: Rc<H>,
    pub settings: HttpSettings,
    pub(super) places: Rc<Places>,
    pub(crate) bodies: BodyBudget,
    pub(crate) tally: TokenTally,
    pub(crate) wrong_keys: WrongKeys,
    pub(super) reported_contexts: ReportedContexts,
    pub(crate) conversations: Conversations,
    pub(super) is_ending: watch::Sender<bool>,
    /// Name of this machine, which browsers of the local network may use for it.
    hostname: String,
}

impl<H: RequestRouter> HttpServer<H> {
    pub fn new(service: Rc<H>, settings: HttpSettings) -> Self {
        Self {
            service,
            places: Places::new(settings.limits.connections),
            settings,
            bodies: BodyBudget::default(),
            tally: TokenTally::default(),
            wrong_keys: WrongKeys::default(),
            reported_contexts: ReportedContexts::default(),
            conversations: Conversations::default(),
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
        let shape = ErrorShape::of(request.uri().path());
        let check = self.settings.keys.check(request.headers(), &client.shown_key);
        let request = request.map(|incoming| ClientBody { incoming, client: Rc::clone(&client) });
        let mut reply = match self.dispatch(request, check).await {
            Ok(reply) => reply,
            Err(problem) => reply::problem(&problem, shape),
        };
        self.settings.origins.grant(origin.as_ref(), reply.headers_mut());
        Ok(handed_over(reply, &client, in_use))
    }

    async fn dispatch(
        self: &Rc<Self>,
        request: Request<ClientBody>,
        check: KeyCheck,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let (mut head, body) = request.into_parts();
        // Browsers send preflights without a key, and they change nothing.
        if head.method == Method::OPTIONS {
            // 200 and not 204, as llama-server answers.
            let mut reply = reply::empty(StatusCode::OK);
            let is_any = api::find(&Method::PUT, head.uri.path()).is_ok();
            Origins::preflight(is_any, &head.headers, reply.headers_mut());
            return Ok(reply);
        }
        if let Some(hop) = self.service.hop(&head.headers) {
            let hop = hop?;
            self.let_in(&body.client, None).await?;
            return Box::pin(self.from_peer(hop, head, body)).await;
        }
        // Any page can make its own name point here (DNS rebinding), and the browser then takes it for this
        // server's own. A key is what such a page lacks; without keys the name must be one that only this
        // machine has.
        let host = head.headers.get(HOST);
        if self.settings.keys.is_empty() && !self.settings.origins.permit_host(host, &self.hostname) {
            return Err(foreign_host());
        }
        // Copied, because `head` is moved while the route still refers to them.
        let path = head.uri.path().to_owned();
        let origin = cors::engine_label(host).map(str::to_owned);
        let found = match origin {
            Some(_) => RouteMatch { action: Action::Upstream, rest: "" },
            None => match api::find(&head.method, &path) {
                Ok(found) => RouteMatch { action: page::for_browser(found.action, &head.headers), ..found },
                Err(missing) => return Ok(no_route(&path, missing)),
            },
        };
        self.authorise(&mut head, &body.client, check, &found, origin.is_some()).await?;
        if let Some(label) = origin {
            return Box::pin(self.to_origin(&label, head, body)).await;
        }
        // DECISION: all but requests for engines are boxed, because the memory of each request has room for
        // the largest, and is copied when its connection takes it.
        match found.action {
            Action::Engine => self.to_engine(head, body).await,
            Action::Ollama(endpoint) => Box::pin(self.ollama(endpoint, head, body)).await,
            Action::EngineOr(own) if self.is_of_engine(own, &head) => self.to_engine(head, body).await,
            Action::AnyEngine => Box::pin(self.to_any_engine(head, body)).await,
            Action::Stream => Box::pin(self.stream_of(found.rest, head, body)).await,
            Action::StreamLookup => Box::pin(self.lookup_streams(head, body)).await,
            Action::Upstream => Box::pin(self.upstream(found.rest, head, body)).await,
            Action::EngineOr(own) | Action::Own(own) => {
                Box::pin(self.own(own, found.rest, &head, body)).await
            }
        }
    }

    /// Ends all feeds: their watchers would keep a server that drains waiting.
    pub fn end_feeds(&self) {
        self.is_ending.send_replace(true);
    }

    /// Ends with the server's feeds.
    pub async fn ended(&self) {
        // An error means that the server is gone.
        let _ = self.is_ending.subscribe().wait_for(|is_ending| *is_ending).await;
    }

    /// Sends a request to the engine of the model that it names.
    async fn to_engine(
        self: &Rc<Self>,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let mut received = receive(body, &self.bodies, &self.settings.limits).await?;
        let named = named_in_body(&head, &mut received);
        let chosen = self.model_of(&head, &received, named.as_ref().map(|(named, _)| named))?;
        let named = match self.service.local().filters(chosen.model) {
            // Boxed, because most models have none.
            Some(_) => Box::pin(self.filter(&head, chosen.model, &mut received, named)).await?,
            None => named,
        };
        let mut reply = self.send(chosen.model, head, received, named).await?;
        self.name_model(chosen, &mut reply);
        Ok(reply)
    }

    /// Sends a request that every engine answers alike, to the model that it names or to one that offers it.
    async fn to_any_engine(
        self: &Rc<Self>,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let is_named = query::parameter(head.uri.query(), "model").is_some();
        let flags: &[&str] = if head.uri.path() == "/tools" { &TOOL_FLAGS } else { &[PROXY_FLAG] };
        let any = self.service.local().with_flag(flags).or_else(|| self.service.local().stand_in(None));
        match any {
            _ if is_named => self.to_engine(head, body).await,
            Some(model) => self.to_model(model, head, body).await,
            None => Err(no_tools()),
        }
    }

    pub(crate) async fn to_model(
        self: &Rc<Self>,
        model: ModelId,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let received = receive(body, &self.bodies, &self.settings.limits).await?;
        self.send(model, head, received, None).await
    }

    // DECISION: no `async fn`, which would have room for the request twice, and would copy it there.
    pub(crate) fn send(
        self: &Rc<Self>,
        model: ModelId,
        head: Parts,
        received: Received,
        named: Option<(ModelKey, WrittenBytes)>,
    ) -> impl Future<Output = Result<Reply<H::Pass>, HttpProblem>> {
        let target = target_of(&head);
        let conversation = latest::named(&head).filter(|_| head.method == Method::POST);
        let mut request = self.request(model, target, head, received);
        request.named = named;
        async move {
            match conversation {
                Some(id) => self.converse(&id, model, request).await,
                None => self.carry(model, request).await,
            }
        }
    }

    /// Boxed where it is made, because it is half a kibibyte.
    fn request(
        &self,
        model: ModelId,
        target: PathAndQuery,
        head: Parts,
        received: Received,
    ) -> Box<ProxyRequest> {
        let upgrades = websocket::is_requested(&head);
        let access = if upgrades { self.access(&head, Some(model)) } else { None };
        Box::new(ProxyRequest {
            access: RefCell::new(access.map(Box::new)),
            head,
            target,
            received,
            named: None,
            upgrades,
            owns_origin: false,
            is_of_page: false,
            holds_head: !upgrades,
            key_use: RefCell::default(),
        })
    }

    /// True if an engine answers instead of this server: for a named model, and the properties of the only
    /// model unless it is not loaded.
    fn is_of_engine(&self, own: Own, head: &Parts) -> bool {
        // With several models, llama.cpp's page needs the router's properties.
        let only = || match self.service.local().models()[..] {
            [only] => {
                self.service.local().listing(only).is_running()
                    && self.service.local().stand_in(None) == Some(only)
            }
            _ => false,
        };
        query::parameter(head.uri.query(), "model").is_some() || (own == Own::Props && only())
    }

    /// `/upstream/<model>/<path>`: the model's name may hold slashes, so the longest name that is one wins.
    async fn upstream(
        self: &Rc<Self>,
        rest: &str,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let (model, path) = self.split_upstream(rest).ok_or_else(|| self.unknown_model(&head, rest))?;
        let model = self.permitted(&head, model)?;
        let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("/{path}{query}").parse();
        let target = target.unwrap_or_else(|_| PathAndQuery::from_static("/"));
        self.pass_unchanged(model, target, (head, body), false).await
    }

    /// Passes a request on whose path or host names the model, so that the engine gets the body unchanged.
    pub(super) async fn pass_unchanged(
        self: &Rc<Self>,
        model: ModelId,
        target: PathAndQuery,
        (head, body): (Parts, ClientBody),
        owns_origin: bool,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let received = receive(body, &self.bodies, &self.settings.limits).await?;
        let mut request = self.request(model, target, head, received);
        (request.owns_origin, request.is_of_page, request.holds_head) = (owns_origin, true, false);
        self.carry(model, request).await
    }

    fn split_upstream<'a>(&self, rest: &'a str) -> Option<(ModelId, &'a str)> {
        // Names of models may hold slashes; up to fifteen are looked for.
        let ends = rest.match_indices('/').map(|(at, _)| at).chain([rest.len()]);
        let splits: Vec<usize> = ends.take(16).collect();
        splits.into_iter().rev().find_map(|end| {
            let name = query::decode_path(&rest[..end])?;
            let model = self.service.local().resolve(&name)?;
            Some((model, rest[end..].trim_start_matches('/')))
        })
    }

    // DECISION: a request that need not wait is carried within this future, and only others get memory of
    // their own that a stream with heartbeats can keep. Its five kilobytes for each request cost a tenth of a
    // small one.
    pub(crate) async fn carry(
        self: &Rc<Self>,
        model: ModelId,
        request: Box<ProxyRequest>,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        self.charge(model, &request)?;
        // Taken before admission: the time to the first byte includes the wait for the model.
        let requested = Instant::now();
        let bounced = match self
            .service
            .admit_at_once(model, request.options(requested, self.service.local().traces()))
        {
            Some(pass) => match proxy::carry_once(&request, pass, &self.settings.limits).await {
                Ok(answer) => {
                    return self.counted(model, requested, answer).map(|answer| answer.map(ReplyBody::Relay));
                }
                Err(pass) => Some(pass),
            },
            None => None,
        };
        Box::pin(self.carry_later(model, request, requested, bounced)).await
    }

    /// Carries a request that waits for its model, or whose pass bounced.
    async fn carry_later(
        self: &Rc<Self>,
        model: ModelId,
        request: Box<ProxyRequest>,
        requested: Instant,
        bounced: Option<H::Pass>,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let every = heartbeat::every(&request.head.headers, self.settings.heartbeat);
        let (request, waits) = (Rc::<ProxyRequest>::from(request), Rc::new(Cell::new(true)));
        let (own, own_waits) = (Rc::clone(&request), Rc::clone(&waits));
        let mut exchange =
            Box::pin(Rc::clone(self).exchange_since(requested, model, own, own_waits, bounced));
        let Some(every) = every else {
            return exchange.await.map(|answer| answer.map(ReplyBody::Relay));
        };
        let answer = match heartbeat::unless_waiting(every, &waits, &mut exchange).await {
            Some(answer) => answer,
            None if request.prompt().streams().await => {
                let server = Rc::clone(self);
                let line = move || {
                    if waits.get() {
                        server.service.local().wait_line(model)
                    } else {
                        "the engine is working on the request".to_owned()
                    }
                };
                let heartbeat = Heartbeat::new(exchange, every, request.target.path(), line);
                return Ok(reply::unbuffered("text/event-stream", ReplyBody::Heartbeat(heartbeat)));
            }
            None => exchange.await,
        };
        answer.map(|answer| answer.map(ReplyBody::Relay))
    }

    /// Waits for the model and sends it the request. `waits` is true until the model has it.
    pub(crate) async fn exchange(
        self: Rc<Self>,
        model: ModelId,
        request: Rc<ProxyRequest>,
        waits: Rc<Cell<bool>>,
    ) -> Result<Response<Relay<H::Pass>>, HttpProblem> {
        self.charge(model, &request)?;
        self.exchange_since(Instant::now(), model, request, waits, None).await
    }

    /// The same for a request that was there at `asked`, and whose pass may have bounced.
    async fn exchange_since(
        self: Rc<Self>,
        requested: Instant,
        model: ModelId,
        request: Rc<ProxyRequest>,
        waits: Rc<Cell<bool>>,
        bounced: Option<H::Pass>,
    ) -> Result<Response<Relay<H::Pass>>, HttpProblem> {
        let admitted = match bounced {
            Some(pass) => pass.bounced(request.prompt()).await,
            None => {
                Rc::clone(&self.service)
                    .admit(model, request.options(requested, self.service.local().traces()), request.prompt())
                    .await
            }
        };
        let answer = match admitted {
            Ok(pass) => proxy::carry(&request, pass, &self.settings.limits, &waits).await,
            Err(problem) => Err(problem),
        };
        self.counted(model, requested, answer)
    }

    /// Counts an answer and the time since the whole request was there.
    pub(super) fn counted(
        &self,
        model: ModelId,
        requested: Instant,
        answer: Result<Response<Relay<H::Pass>>, HttpProblem>,
    ) -> Result<Response<Relay<H::Pass>>, HttpProblem> {
        // Refusals count as well: they are what a client sees of the model.
        let status = answer.as_ref().map_or_else(|problem| problem.status, Response::status);
        self.tally.count(model, status, requested.elapsed());
        answer
    }
}

/// Path and query as an engine gets them.
pub(super) fn target_of(head: &Parts) -> PathAndQuery {
    let target = head.uri.path_and_query().cloned();
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    match target.as_str().strip_prefix("/api/v0/") {
        Some(rest) => format!("/v1/{rest}").parse().unwrap_or(target),
        None => target,
    }
}

/// The reply as the connection sends it.
pub(super) fn handed_over<P: Pass>(
    mut reply: Reply<P>,
    client: &Rc<ClientConnection>,
    in_use: RequestGuard,
) -> Response<impl Body<Data = Bytes, Error = BrokenAnswer> + use<P>> {
    if let ReplyBody::Relay(relay) = reply.body_mut() {
        relay.take_tunnel().into_iter().for_each(|tunnel| client.upgrade_to(tunnel));
    }
    // The next request of this connection may be for another model, or for none.
    reply.body_mut().limit_stalls(client);
    // The body carries the mark, because hyper drops it once it has been sent.
    reply.map(|body| {
        body.map_err(move |error| {
            let _mark = &in_use;
            error
        })
    })
}

fn no_route<P: super::model_service::Pass>(path: &str, missing: RouteMissing) -> Reply<P> {
    match missing {
        RouteMissing::Path => {
            let message = format!("no such path: {path}");
            let problem = HttpProblem::new(StatusCode::NOT_FOUND, "no_route", message);
            reply::problem(&problem, ErrorShape::of(path))
        }
        RouteMissing::Method(methods) => {
            let methods = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("{path} accepts only {methods}");
            let problem = HttpProblem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message);
            let mut reply = reply::problem(&problem, ErrorShape::of(path));
            if let Ok(methods) = HeaderValue::from_str(&methods) {
                reply.headers_mut().insert(ALLOW, methods);
            }
            reply
        }
    }
}

fn foreign_host() -> HttpProblem {
    let message = "the Host header does not name this machine";
    HttpProblem::new(StatusCode::FORBIDDEN, "foreign_host", message).hint(Hint::new(Advice::Other(
        "use localhost, or allow the name with --allow-origin http://NAME:PORT".to_owned(),
    )))
}

fn no_tools() -> HttpProblem {
    let message =
        "no model has a flag that enables this path: --tools, --mcp-servers-config or --ui-mcp-proxy";
    HttpProblem::new(StatusCode::FORBIDDEN, "feature_disabled", message)
}
