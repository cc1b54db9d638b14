//! The proxy: a request is sent to its engine, and the answer streamed back.
//!
//! Until that first byte nothing has reached the client, so nothing is lost: a stale connection is replaced,
//! and an engine that died hands the request back to the owner, which may give it another try. From the first
//! byte on the answer is the client's and is never sent twice.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, Version};

use super::body::Received;
use super::headers;
use super::limits::Limits;
use super::model_key::ModelKey;
use super::model_service::Pass;
use super::problem::HttpProblem;
use super::prompt::RequestPrompt;
use super::rewrite;
use super::rope::Rope;
use super::sse::EventDialect;
use super::stream::{Relay, StreamSource};
use super::upstream::{Upstream, Wire};

/// Fresh connections tried before an engine is given up. On a busy machine one may lie so long between the
/// accept and its request that the engine takes it for idle and closes it; a dead engine refuses the next at
/// once.
const FRESH: u32 = 2;

/// A request to an engine, kept until the first byte of the answer so that it can be sent again.
#[derive(Debug)]
pub(crate) struct ProxyRequest {
    pub(crate) head: Parts,
    pub(crate) target: PathAndQuery,
    pub(crate) received: Received,
    /// The place of the model's name, and the form in which a name is written there.
    pub(crate) named: Option<(ModelKey, WrittenBytes)>,
    /// True if the head waits for the first byte of the body. Feeds that may stay silent go at once.
    pub(crate) holds_head: bool,
}

/// The form of a model's name in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenBytes {
    Json,
    Plain,
}

/// The failure of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The connection was closed before a byte of an answer: perhaps only the connection was too old.
    Unanswered,
    /// The engine went away after it had begun.
    Died,
}

/// The beginning of an answer.
struct UpstreamAnswer {
    head: http::response::Parts,
    source: StreamSource,
    first: Bytes,
}

/// Carries `request` to the engine behind `pass`, or behind the next one where the owner gives one.
pub(crate) async fn carry<P: Pass>(
    request: ProxyRequest,
    mut pass: P,
    limits: &Limits,
) -> Result<Response<Relay<P>>, HttpProblem> {
    loop {
        let upstream = pass.upstream().clone();
        match request.ask(&upstream, limits).await {
            Some(answer) => return Ok(request.relay(answer, pass)),
            None => pass = pass.bounced(request.prompt()).await?,
        }
    }
}

impl ProxyRequest {
    pub(crate) fn prompt(&self) -> RequestPrompt<'_> {
        RequestPrompt {
            method: &self.head.method,
            path: self.target.path(),
            body: &self.received.rope,
        }
    }

    /// Returns the beginning of the engine's answer; `None` when there is no such engine any more.
    async fn ask(&self, upstream: &Upstream, limits: &Limits) -> Option<UpstreamAnswer> {
        // One reused connection at most: where that was stale, the other idle ones probably are too.
        if let Some(wire) = upstream.reuse().await {
            match self.attempt(wire, upstream).await {
                Err(Lost::Unanswered) => {}
                outcome => return outcome.ok(),
            }
        }
        let mut left = FRESH;
        loop {
            let wire = upstream.connect(limits.connect_time).await.ok()?;
            // Counted after the connect: a refused one means that the engine is gone.
            left -= 1;
            match upstream.crowd_in(self.attempt(wire, upstream)).await {
                Err(Lost::Unanswered) if left > 0 => {}
                outcome => return outcome.ok(),
            }
        }
    }

    async fn attempt(&self, mut wire: Wire, upstream: &Upstream) -> Result<UpstreamAnswer, Lost> {
        let response = wire
            .send(self.request(upstream))
            .await
            .map_err(|_| Lost::Unanswered)?;
        let (head, body) = response.into_parts();
        let mut source = StreamSource { wire, body };
        let first = match self.holds_head {
            true => source.first().await.map_err(|_| Lost::Died)?,
            false => Bytes::new(),
        };
        Ok(UpstreamAnswer { head, source, first })
    }

    fn request(&self, upstream: &Upstream) -> Request<Rope> {
        let mut request = Request::new(self.body_for(upstream));
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = Uri::from(self.target.clone());
        *request.headers_mut() = headers::to_engine(&self.head.headers, upstream);
        request
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

    fn relay<P: Pass>(&self, answer: UpstreamAnswer, pass: P) -> Response<Relay<P>> {
        let UpstreamAnswer {
            mut head,
            source,
            first,
        } = answer;
        headers::to_client(&mut head.headers);
        // The client's connection is ours: an engine's HTTP/1.0 must not go out on one that is kept open.
        head.version = Version::HTTP_11;
        // An event can be added to a stream only where its length was not promised.
        let guarded = headers::is_event_stream(&head.headers)
            && !head.headers.contains_key(CONTENT_LENGTH)
            && !head.headers.contains_key(CONTENT_ENCODING);
        if guarded {
            headers::forbid_buffering(&mut head.headers);
        }
        let dialect = guarded.then(|| EventDialect::of(self.target.path()));
        Response::from_parts(head, Relay::new(source, pass, first, dialect))
    }
}
