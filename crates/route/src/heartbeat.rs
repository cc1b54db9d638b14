//! Sends comments in an event stream while its request waits for a model, so that clients and proxies do not
//! time out.
//!
//! The client gets its headers before the engine has the request. A failure after that is the last event of
//! the stream.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep};

use super::connection::{ClientConnection, StallLimit};
use super::headers;
use super::model_service::Pass;
use super::problem::HttpProblem;
use super::sse::EventDialect;
use super::stream::Relay;

/// Time between two comments, and before the first. Python's httpx gives up after 5 s without a byte by
/// default, and nginx after 60 s.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// A client may not make the server write more often than this.
const LEAST: Duration = Duration::from_secs(1);
/// An engine's answer that is no stream of events; of a longer one only the status is passed on.
const LONGEST_ANSWER: usize = 64 * 1024;

/// The time between two comments for a request with these headers; `None` if its client wants the status
/// instead.
pub(crate) fn every(head: &HeaderMap, configured: Option<Duration>) -> Option<Duration> {
    match headers::text(head, &headers::X_HEARTBEAT) {
        Some("off") => None,
        Some(text) => match plimsoll_config::parse_duration(text) {
            Some(Duration::ZERO) => None,
            Some(time) => Some(time.max(LEAST)),
            None => configured,
        },
        None => configured,
    }
}

/// Returns the answer; `None` once the request has waited for `patience` without a break.
pub(crate) async fn unless_waiting<T>(
    patience: Duration,
    waits: &Cell<bool>,
    exchange: &mut (impl Future<Output = T> + Unpin),
) -> Option<T> {
    // Set only while it waits: most requests are admitted at once.
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|context| {
        if let Poll::Ready(answer) = Pin::new(&mut *exchange).poll(context) {
            return Poll::Ready(Some(answer));
        }
        if !waits.get() {
            timer = None;
            return Poll::Pending;
        }
        timer.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(context).map(|()| None)
    })
    .await
}

/// The answer of the engine, or the event with the reason of its absence.
type Outcome<P> = Pin<Box<dyn Future<Output = Result<Relay<P>, Bytes>>>>;

/// Body of a stream that waits.
pub(crate) struct Heartbeat<P: Pass> {
    outcome: Outcome<P>,
    every: Duration,
    next: Pin<Box<Sleep>>,
    comment: Box<dyn Fn() -> Bytes>,
    client: Option<Rc<ClientConnection>>,
}

/// Next part of a waiting stream.
pub(crate) enum Beat<P: Pass> {
    Comment(Bytes),
    /// The wait is over.
    Answer(Box<Relay<P>>),
    /// The last event.
    Failed(Bytes),
}

impl<P: Pass> Heartbeat<P> {
    /// Waits for `exchange`. Each comment says what `line` returns.
    pub(crate) fn new(
        exchange: impl Future<Output = Result<Response<Relay<P>>, HttpProblem>> + 'static,
        every: Duration,
        path: &str,
        line: impl Fn() -> String + 'static,
    ) -> Self {
        let (dialect, path) = (EventDialect::of(path), path.to_owned());
        Self {
            outcome: Box::pin(async move { as_stream(exchange.await, dialect).await }),
            every,
            next: Box::pin(sleep(Duration::ZERO)),
            comment: Box::new(move || EventDialect::heartbeat(&path, &line())),
            client: None,
        }
    }

    /// Takes the connection, whose limit changes once an engine answers.
    pub(crate) fn go_to(&mut self, client: &Rc<ClientConnection>) -> StallLimit {
        self.client = Some(Rc::clone(client));
        StallLimit::default()
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Beat<P>> {
        if let Poll::Ready(outcome) = self.outcome.as_mut().poll(context) {
            return Poll::Ready(match outcome {
                Ok(relay) => {
                    self.client.iter().for_each(|client| client.limit_stalls(relay.stall_limit()));
                    Beat::Answer(Box::new(relay))
                }
                Err(event) => Beat::Failed(event),
            });
        }
        ready!(self.next.as_mut().poll(context));
        self.next.as_mut().reset(Instant::now() + self.every);
        Poll::Ready(Beat::Comment((self.comment)()))
    }
}

/// Returns an engine's stream, or the event for an answer that cannot follow in a stream that has begun.
async fn as_stream<P: Pass>(
    answer: Result<Response<Relay<P>>, HttpProblem>,
    dialect: EventDialect,
) -> Result<Relay<P>, Bytes> {
    let (head, relay) = answer.map_err(|problem| dialect.error_event(&problem))?.into_parts();
    let streams = headers::is_event_stream(&head.headers) && !head.headers.contains_key(CONTENT_ENCODING);
    if head.status.is_success() && streams {
        return Ok(relay);
    }
    let body = Limited::new(relay, LONGEST_ANSWER).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let stated = serde_json::from_slice::<Value>(&body).ok();
    // The engine's own error, in the words and with the type that it chose.
    if let Some(error) =
        stated.as_ref().and_then(|stated| stated.get("error")).filter(|_| !head.status.is_success())
    {
        return Err(dialect.error_event_of(&json!({ "error": error })));
    }
    let kind = headers::text(&head.headers, &CONTENT_TYPE).unwrap_or("no content type");
    let text =
        format!("the engine answered with status {} and {kind}, not with events", head.status.as_u16());
    Err(dialect.error_event(&HttpProblem::new(StatusCode::BAD_GATEWAY, "no_event_stream", text)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_header_switches_comments_off_or_sets_their_time() {
        let five = Some(Duration::from_secs(5));
        for (header, configured, expected) in [
            (None, five, five),
            (None, None, None),
            (Some("off"), five, None),
            (Some("0"), five, None),
            (Some("2s"), None, Some(Duration::from_secs(2))),
            (Some("1ms"), five, Some(LEAST)),
            (Some("never"), five, five),
            (Some("99999999999999999999h"), None, None),
        ] {
            let mut head = HeaderMap::new();
            header.map(|text| head.insert(headers::X_HEARTBEAT, HeaderValue::from_static(text)));
            assert_eq!(every(&head, configured), expected, "{header:?}");
        }
    }
}
