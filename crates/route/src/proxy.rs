//! Sends a request to its engine, and streams the answer back.
//!
//! A request may be sent again only until the first byte of the answer arrives.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use plimsoll_fleet::SeatToken;

use super::access_key::KeyUse;
use super::answer_headers;
use super::body::Received;
use super::engine_body::EngineBody;
use super::headers;
use super::limits::Limits;
use super::model_key::ModelKey;
use super::model_service::{Pass, RouteOptions};
use super::problem::HttpProblem;
use super::prompt::RequestPrompt;
use super::query;
use super::rewrite;
use super::rope::Rope;
use super::sse::EventDialect;
use super::standing_access::StandingAccess;
use super::stream::Relay;
use super::stream_source::StreamSource;
use super::trace_parent::TraceParent;
use super::tunnel::Tunnel;
use super::upstream::{Upstream, Wire};
use super::websocket;

/// Fresh connections tried before an engine is given up. On a busy machine, the engine may close a connection
/// as idle between the accept and its request. A dead engine refuses the next connection at once.
const FRESH: u32 = 2;

/// Request to an engine, kept until the first byte of the answer so that it can be sent again.
#[derive(Debug)]
pub(crate) struct ProxyRequest {
    pub head: Parts,
    pub(crate) target: PathAndQuery,
    pub(crate) received: Received,
    /// The place of the model's name, and the form in which a name is written there.
    pub named: Option<(ModelKey, WrittenBytes)>,
    /// The client asks for a websocket.
    pub(crate) upgrades: bool,
    /// The client's access to the websocket that it asks for.
    pub access: RefCell<Option<Box<StandingAccess>>>,
    /// The engine has an origin of its own here, so that its documents need no confinement.
    pub(crate) owns_origin: bool,
    /// The path is the engine's own, and may be that of a page or of its files.
    pub(crate) is_of_page: bool,
    /// True if the head waits for the first byte of the body. Feeds that may stay silent go at once.
    pub(crate) holds_head: bool,
    /// The use of a key with a name by this request. Boxed, because most requests have none.
    pub(crate) key_use: RefCell<Option<Box<KeyUse>>>,
}

/// Place of a model's name in a body: in JSON or in a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenBytes {
    Json,
    Plain,
}

/// Failure of one attempt to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The connection was closed before a byte of an answer: perhaps only the connection was too old.
    Unanswered,
    /// The engine closed the connection after its answer had begun.
    Died,
}

/// Beginning of an engine's answer.
pub(super) struct UpstreamAnswer {
    head: http::response::Parts,
    source: StreamSource,
    first: Bytes,
}

/// Sends `request` to the engine of `pass`, or of another pass if the owner grants one. `waits` is true while
/// it has no pass.
pub(crate) async fn carry<P: Pass>(
    request: &ProxyRequest,
    mut pass: P,
    limits: &Limits,
    waits: &Cell<bool>,
) -> Result<Response<Relay<P>>, HttpProblem> {
    loop {
        waits.set(false);
        match carry_once(request, pass, limits).await {
            Ok(outcome) => return outcome,
            Err(bounced) => {
                waits.set(true);
                pass = bounced.bounced(request.prompt()).await?;
            }
        }
    }
}

/// Sends `request` to the engine of `pass`; gives the pass back if that engine no longer exists.
pub(crate) async fn carry_once<P: Pass>(
    request: &ProxyRequest,
    pass: P,
    limits: &Limits,
) -> Result<Result<Response<Relay<P>>, HttpProblem>, P> {
    let upstream = pass.upstream().clone();
    request.key_use.borrow_mut().iter_mut().for_each(|key_use| key_use.sent());
    match request.ask(&upstream, limits).await {
        Some(answer) if pass.is_declined(&answer.head) => Err(pass),
        Some(answer) => Ok(request.answered(answer, pass).await),
        None => Err(pass),
    }
}

impl ProxyRequest {
    /// The options of the request, which was whole at `asked`, with its trace context where requests are
    /// traced.
    pub(crate) fn options(&self, requested: Instant, is_traced: bool) -> RouteOptions {
        let autoload = query::parameter(self.head.uri.query(), "autoload");
        let autoload = autoload.map(|wanted| matches!(&*wanted, "true" | "1"));
        let header = || TraceParent::read(self.head.headers.get("traceparent")?.as_bytes());
        RouteOptions {
            autoload,
            client: self.received.client,
            priority: self.key_use.borrow().as_ref().map(|key_use| key_use.priority()).unwrap_or_default(),
            parent: if is_traced { header() } else { None },
            hop: self.head.extensions.get().cloned(),
            requested: Some(requested),
        }
    }

    pub(crate) fn prompt(&self) -> RequestPrompt<'_> {
        RequestPrompt { method: &self.head.method, path: self.target.path(), body: &self.received.rope }
    }

    /// The client's view of the engine's answer.
    pub(super) async fn answered<P: Pass>(
        &self,
        answer: UpstreamAnswer,
        mut pass: P,
    ) -> Result<Response<Relay<P>>, HttpProblem> {
        if answer.head.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.tunnel(answer, pass).await;
        }
        if let Some(problem) = self.refused_as_broken(&answer) {
            pass.answers(problem.status, self.target.path());
            pass.finished(None);
            return Err(problem);
        }
        Ok(self.relay(answer, pass))
    }

    /// llama-server answers 500 to a body that it cannot parse, which is a fault of the client.
    fn refused_as_broken(&self, answer: &UpstreamAnswer) -> Option<HttpProblem> {
        let is_refused = answer.head.status == StatusCode::INTERNAL_SERVER_ERROR;
        is_refused.then(|| self.prompt().broken()).flatten()
    }

    /// Returns the beginning of the engine's answer; `None` if that engine no longer exists.
    async fn ask(&self, upstream: &Upstream, limits: &Limits) -> Option<UpstreamAnswer> {
        // One reused connection at most: where that was stale, the other idle ones probably are too.
        if let Some(wire) = upstream.reuse().await {
            match self.attempt(wire, upstream).await {
                Err(Lost::Unanswered) => {}
                outcome => return outcome.ok(),
            }
        }
        // Boxed, or the memory of each request would have room for it.
        Box::pin(self.ask_anew(upstream, limits)).await
    }

    async fn ask_anew(&self, upstream: &Upstream, limits: &Limits) -> Option<UpstreamAnswer> {
        let mut left = FRESH;
        loop {
            // A client that has left in this moment is noticed first, and its request is not sent again.
            tokio::task::yield_now().await;
            let wire = upstream.connect(limits.connect_time).await.ok()?;
            // Counted after the connect: a refused one means that the engine is gone.
            left -= 1;
            match upstream.crowd_in(self.attempt(wire, upstream)).await {
                Err(Lost::Unanswered) if left > 0 => {}
                outcome => return outcome.ok(),
            }
        }
    }

    async fn attempt(&self, wire: Wire, upstream: &Upstream) -> Result<UpstreamAnswer, Lost> {
        let body = self.body_for(upstream);
        let length = body.len();
        self.send_on(wire, self.to(upstream, body.into(), length)).await
    }

    /// Sends `request` on this connection.
    pub(super) async fn send_on(
        &self,
        mut wire: Wire,
        request: Request<EngineBody>,
    ) -> Result<UpstreamAnswer, Lost> {
        let response = wire.send(request).await.map_err(|_| Lost::Unanswered)?;
        let (head, body) = response.into_parts();
        let mut source = StreamSource { wire, body };
        let first =
            if self.holds_head { source.first().await.map_err(|_| Lost::Died)? } else { Bytes::new() };
        Ok(UpstreamAnswer { head, source, first })
    }

    /// The request as the engine gets it, with a body of this length.
    pub(super) fn to(&self, upstream: &Upstream, body: EngineBody, length: usize) -> Request<EngineBody> {
        let headers = headers::to_engine(&self.head.headers, upstream, length);
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = Uri::from(self.target.clone());
        *request.headers_mut() = headers;
        if self.upgrades {
            websocket::name(request.headers_mut());
        }
        // llama-server has its page in compressed form alone.
        if self.is_of_page && matches!(self.head.method, Method::GET | Method::HEAD) {
            headers::keep_encodings(&self.head.headers, request.headers_mut());
        }
        request
    }

    /// Joins the client with the engine, which has agreed to an upgrade.
    async fn tunnel<P: Pass>(
        &self,
        answer: UpstreamAnswer,
        mut pass: P,
    ) -> Result<Response<Relay<P>>, HttpProblem> {
        let UpstreamAnswer { mut head, source, .. } = answer;
        pass.answers(head.status, self.target.path());
        // A client that asked for none, or for another one, has a connection that cannot change.
        if !self.upgrades || !websocket::is_accepted(&self.head.headers, &head.headers) {
            return Err(bad_upgrade());
        }
        let (stream, early) = source.wire.into_stream().await.map_err(|_| bad_upgrade())?;
        answer_headers::to_client(&mut head.headers, pass.upstream());
        websocket::name(&mut head.headers);
        let occupied = (self.key_use.take(), self.access.take());
        let tunnel = Tunnel::new(stream, early, occupied, move || pass.finished(None));
        Ok(Response::from_parts(head, Relay::upgraded(tunnel)))
    }

    fn body_for(&self, upstream: &Upstream) -> Rope {
        match (&self.named, upstream.model()) {
            (Some((named, written)), Some(model)) if named.name != model => {
                let text = match written {
                    WrittenBytes::Json => rewrite::json_string(model),
                    WrittenBytes::Plain => model.to_owned(),
                };
                rewrite::splice(&self.received.rope, named.place.clone(), text)
            }
            _ => self.received.rope.clone(),
        }
    }

    fn relay<P: Pass>(&self, answer: UpstreamAnswer, mut pass: P) -> Response<Relay<P>> {
        let UpstreamAnswer { mut head, source, first } = answer;
        pass.answers(head.status, self.target.path());
        // An answer that has come as a whole cannot be broken off any more.
        if !source.is_whole() {
            pass.note_body(&self.prompt());
        }
        answer_headers::to_client(&mut head.headers, pass.upstream());
        // Of a request that another host has passed on, that host knows whose origin it is.
        if !self.owns_origin && self.head.extensions.get::<SeatToken>().is_none() {
            answer_headers::confine(&mut head.headers);
        }
        // The client's connection is ours: an engine's HTTP/1.0 must not go out on one that is kept open.
        head.version = Version::HTTP_11;
        // An event can be added to a stream only where its length was not promised.
        let guarded = source.wire.has_events()
            && !head.headers.contains_key(CONTENT_LENGTH)
            && !head.headers.contains_key(CONTENT_ENCODING);
        if guarded {
            headers::forbid_buffering(&mut head.headers);
        }
        let dialect = guarded.then(|| EventDialect::of(self.target.path()));
        Response::from_parts(head, Relay::new(source, (pass, self.key_use.take()), first, dialect))
    }
}

fn bad_upgrade() -> HttpProblem {
    let message = "the engine switched to another protocol, but its connection was lost";
    HttpProblem::new(StatusCode::BAD_GATEWAY, "bad_upgrade", message)
}
