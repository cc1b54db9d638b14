//! HTTP response bodies: a text of the daemon, an engine's streamed answer, or an event stream.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;

use super::body_budget::BodyShare;
use super::connection::{ClientConnection, StallLimit};
use super::feed::Ending;
use super::headers;
use super::heartbeat::{Beat, Heartbeat};
use super::host_request::FileAnswer;
use super::model_service::Pass;
use super::ollama::stream::OllamaStream;
use super::problem::{ErrorShape, HttpProblem, whole_seconds};
use super::stream::{BrokenAnswer, Relay};

/// Bytes of a counted text that are handed over at once.
const PIECE: usize = 64 * 1024;

const CORP: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

pub(crate) type Reply<P> = Response<ReplyBody<P>>;

pub(crate) enum ReplyBody<P: Pass> {
    Whole(Bytes),
    /// Boxed, because most answers are not.
    Counted(Box<CountedAnswer>),
    Relay(Relay<P>),
    Heartbeat(Heartbeat<P>),
    /// Boxed, because it is three times as large as the others.
    Ollama(Box<OllamaStream<P>>),
    Feed(FeedPieces),
}

/// Pieces of a feed as they come.
type FeedPieces = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Bytes>>>;

/// A text that counts as a body for as long as the client has not read it.
pub(crate) struct CountedAnswer {
    text: Bytes,
    _share: BodyShare,
}

impl CountedAnswer {
    /// The next piece, copied: a slice would keep the whole text beyond its share.
    fn next(&mut self) -> Option<Bytes> {
        let piece = self.text.split_to(self.text.len().min(PIECE));
        (!piece.is_empty()).then(|| Bytes::copy_from_slice(&piece))
    }
}

/// A text whose bytes `share` counts.
pub(super) fn counted_text<P: Pass>(kind: &'static str, text: String, share: BodyShare) -> Reply<P> {
    own(kind, ReplyBody::Counted(Box::new(CountedAnswer { text: text.into(), _share: share })))
}

pub(crate) fn text<P: Pass>(kind: &'static str, body: impl Into<Bytes>) -> Reply<P> {
    own(kind, ReplyBody::Whole(body.into()))
}

/// A reply of this server's own, which no browser may take for another type or put into another site's page.
fn own<P: Pass>(kind: &'static str, body: ReplyBody<P>) -> Reply<P> {
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // Logs and error texts quote what clients sent, which a browser must not take for HTML.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Without it a page of another site could embed this answer and measure it.
    headers.insert(CORP, HeaderValue::from_static("same-origin"));
    reply
}

pub(crate) fn json<P: Pass>(body: &Value) -> Reply<P> {
    text("application/json; charset=utf-8", body.to_string())
}

pub(crate) fn empty<P: Pass>(status: StatusCode) -> Reply<P> {
    let mut reply = Response::new(ReplyBody::Whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// A feed that ends at this moment, or with its last piece.
pub(crate) fn feed<P: Pass>(
    kind: &'static str,
    mut ending: Ending,
    mut next: impl FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + 'static,
) -> Reply<P> {
    unbuffered(kind, ReplyBody::Feed(Box::new(move |context| ending.or(context, &mut next))))
}

/// A reply whose pieces no proxy may hold back.
pub(crate) fn unbuffered<P: Pass>(kind: &'static str, body: ReplyBody<P>) -> Reply<P> {
    let mut reply = own(kind, body);
    headers::forbid_buffering(reply.headers_mut());
    reply
}

/// The answer to a host that asks about files.
pub(super) fn files<P: Pass>(answer: FileAnswer) -> Reply<P> {
    match answer {
        FileAnswer::List(list) => json(&list),
        FileAnswer::Begun => empty(StatusCode::ACCEPTED),
        FileAnswer::Part { range, bytes } => {
            let mut reply = Response::new(ReplyBody::Whole(bytes));
            *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
            reply.headers_mut().insert(CONTENT_RANGE, range);
            reply
        }
    }
}

pub(crate) fn problem<P: Pass>(problem: &HttpProblem, shape: ErrorShape) -> Reply<P> {
    let mut reply = text("application/json; charset=utf-8", problem.body(shape));
    *reply.status_mut() = problem.status;
    if let Some(wait) = problem.retry_after {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
    }
    // RFC 9110 section 15.5.2 asks for a challenge with each 401.
    if problem.status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"plimsoll\"");
        reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    reply
}

impl<P: Pass> Body for ReplyBody<P> {
    type Data = Bytes;
    type Error = BrokenAnswer;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        match &mut *self {
            Self::Whole(body) if body.is_empty() => Poll::Ready(None),
            Self::Whole(body) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
            Self::Counted(answer) => Poll::Ready(answer.next().map(|piece| Ok(Frame::data(piece)))),
            Self::Relay(relay) => Pin::new(relay).poll_frame(context),
            Self::Heartbeat(heartbeat) => match ready!(heartbeat.poll(context)) {
                Beat::Comment(comment) => Poll::Ready(Some(Ok(Frame::data(comment)))),
                Beat::Answer(relay) => {
                    *self = Self::Relay(*relay);
                    self.poll_frame(context)
                }
                Beat::Failed(event) => {
                    *self = Self::Whole(event);
                    self.poll_frame(context)
                }
            },
            Self::Ollama(stream) => stream.poll_lines(context).map(as_frame),
            Self::Feed(next) => next(context).map(as_frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_empty(),
            Self::Counted(answer) => answer.text.is_empty(),
            Self::Relay(relay) => relay.is_end_stream(),
            Self::Heartbeat(_) | Self::Feed(_) => false,
            Self::Ollama(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            // hyper turns an exact size into Content-Length; without one it sends chunks.
            Self::Whole(body) => SizeHint::with_exact(u64::try_from(body.len()).unwrap_or(u64::MAX)),
            Self::Counted(answer) => {
                SizeHint::with_exact(u64::try_from(answer.text.len()).unwrap_or(u64::MAX))
            }
            Self::Relay(relay) => relay.size_hint(),
            Self::Heartbeat(_) | Self::Ollama(_) | Self::Feed(_) => SizeHint::default(),
        }
    }
}

impl<P: Pass> ReplyBody<P> {
    /// Limits the time for which `client` may take nothing of this answer.
    pub(crate) fn limit_stalls(&mut self, client: &Rc<ClientConnection>) {
        client.limit_stalls(match self {
            // Only an engine's answer holds memory of a card while its client reads nothing.
            Self::Relay(relay) => relay.stall_limit(),
            Self::Heartbeat(heartbeat) => heartbeat.go_to(client),
            Self::Ollama(stream) => stream.stall_limit(),
            _ => StallLimit::default(),
        });
    }
}

fn as_frame(piece: Option<Bytes>) -> Option<Result<Frame<Bytes>, BrokenAnswer>> {
    piece.map(|piece| Ok(Frame::data(piece)))
}

impl<P: Pass> fmt::Debug for ReplyBody<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "Whole",
            Self::Counted(_) => "Counted",
            Self::Relay(_) => "Relay",
            Self::Heartbeat(_) => "Heartbeat",
            Self::Ollama(_) => "Ollama",
            Self::Feed(_) => "Feed",
        })
    }
}
