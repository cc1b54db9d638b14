//! Reads a request's body whole, before a model is asked for.
//!
//! Three bounds: the size of one body, the size of all bodies held, and a pace. The pace is an allowance of
//! time that grows with every byte that came, so a large prompt over a slow line is fine and one byte a
//! minute is not. The model's name is looked for while the bytes arrive.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};

use super::limits::Limits;
use super::model_key::Search;
use super::problem::Problem;
use super::rope::Rope;

/// Chunks below this are put together: a body sent byte by byte must not cost a list entry a byte.
const SMALL: usize = 1024;
const GATHERED: usize = 16 * 1024;

/// The bytes of bodies held right now, over all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Rc<Cell<u64>>);

/// A body, which counts as held until it is dropped.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) rope: Rope,
    pub(crate) search: Search,
    held: Held,
    counted: u64,
}

impl Drop for Received {
    fn drop(&mut self) {
        let all = &self.held.0;
        all.set(all.get().saturating_sub(self.counted));
    }
}

/// Reads `body` to its end.
pub(crate) async fn receive(mut body: Incoming, held: &Held, limits: &Limits) -> Result<Received, Problem> {
    if body.size_hint().lower() > limits.body.get() {
        return Err(too_large(limits));
    }
    let mut reader = Reader::new(held, limits);
    while !body.is_end_stream() {
        let Some(frame) = reader.in_time(body.frame()).await? else {
            break;
        };
        let frame = frame.map_err(|_| cut_short())?;
        if let Ok(data) = frame.into_data() {
            reader.take(data)?;
        }
    }
    Ok(reader.finish())
}

struct Reader<'a> {
    limits: &'a Limits,
    received: Received,
    small: BytesMut,
    started: Instant,
}

impl<'a> Reader<'a> {
    fn new(held: &Held, limits: &'a Limits) -> Self {
        Self {
            limits,
            received: Received {
                rope: Rope::default(),
                search: Search::default(),
                held: held.clone(),
                counted: 0,
            },
            small: BytesMut::new(),
            started: Instant::now(),
        }
    }

    /// Waits for `next`, which is usually there: only a wait starts a timer.
    async fn in_time<F: Future>(&self, next: F) -> Result<F::Output, Problem> {
        let mut next = std::pin::pin!(next);
        if let Some(output) = now_or_never(next.as_mut()).await {
            return Ok(output);
        }
        timeout_at(self.deadline(), next).await.map_err(|_| too_slow())
    }

    fn deadline(&self) -> Instant {
        let earned = self.received.counted / self.limits.body_rate.get().max(1);
        self.started + self.limits.body_time + Duration::from_secs(earned)
    }

    fn take(&mut self, data: Bytes) -> Result<(), Problem> {
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        let all = &self.received.held.0;
        self.received.counted += length;
        all.set(all.get() + length);
        if self.received.counted > self.limits.body.get() {
            return Err(too_large(self.limits));
        }
        if all.get() > self.limits.bodies.get() {
            return Err(too_many());
        }
        self.received.search.feed(&data);
        self.keep(data);
        Ok(())
    }

    fn keep(&mut self, data: Bytes) {
        let gather = data.len() < SMALL && (!self.small.is_empty() || self.received.rope.len() > 0);
        if gather {
            self.small.extend_from_slice(&data);
        }
        if !gather || self.small.len() >= GATHERED {
            self.received.rope.push(self.small.split().freeze());
        }
        if !gather {
            self.received.rope.push(data);
        }
    }

    fn finish(mut self) -> Received {
        self.received.rope.push(self.small.freeze());
        self.received
    }
}

async fn now_or_never<F: Future>(mut next: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match next.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

fn too_large(limits: &Limits) -> Problem {
    let message = format!("the request body is larger than {}", limits.body);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

fn too_many() -> Problem {
    let message = "the bodies of the requests in flight fill the memory set aside for them";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "bodies_too_large", message)
        .retry_after(Duration::from_secs(1))
}

fn too_slow() -> Problem {
    let message = "the request body came too slowly";
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message)
}

fn cut_short() -> Problem {
    let message = "the request body ended early or was malformed";
    Problem::new(StatusCode::BAD_REQUEST, "body_cut_short", message)
}
