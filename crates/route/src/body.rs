//! Reads request bodies whole, before a model is chosen.
//!
//! Three limits apply: the size of one body, the memory of all bodies, and the pace of arrival. When memory
//! is full, the slowest unfinished body of the client that holds the most is dropped.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use plimsoll_base::Bytes as Size;
use plimsoll_scheduler::ClientId;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::body_budget::{BodyBudget, BodyShare, BodyState, OccupiedBody, too_many};
use super::connection::ClientConnection;
use super::engine_body::BodyFault;
use super::gather::Gather;
use super::limits::Limits;
use super::model_key::ModelKeySearch;
use super::problem::HttpProblem;
use super::rope::Rope;

/// The longest order: a thousand names of a kibibyte.
const LONGEST_ORDER: Size = Size::mib(1);

/// The body of a client's request, unread.
#[derive(Debug)]
pub(crate) struct ClientBody {
    pub incoming: Incoming,
    pub client: Rc<ClientConnection>,
}

/// A complete request body, which counts as held until it is dropped.
#[derive(Debug)]
pub(crate) struct Received {
    pub client: ClientId,
    pub(crate) rope: Rope,
    pub search: ModelKeySearch,
    share: BodyShare,
}

impl Received {
    /// A body of which nothing is kept here.
    pub(super) fn unread(budget: &BodyBudget, client: ClientId) -> Self {
        Self { client, rope: Rope::default(), search: ModelKeySearch::default(), share: budget.begin(client) }
    }

    pub(super) fn occupied(&self) -> &Rc<OccupiedBody> {
        self.share.body()
    }

    /// Puts another body in the place of this one, and counts its bytes.
    pub(crate) fn replace(&mut self, rope: Rope, limits: &Limits) -> Result<(), HttpProblem> {
        let length = u64::try_from(rope.len()).unwrap_or(u64::MAX);
        if length > limits.body.get() {
            return Err(too_large(limits));
        }
        self.share.count(length);
        self.rope = rope;
        Ok(())
    }
}

/// Reads `body` to its end.
pub(crate) async fn receive(
    ClientBody { incoming: mut body, client }: ClientBody,
    budget: &BodyBudget,
    limits: &Limits,
) -> Result<Received, HttpProblem> {
    // A Content-Length beyond the limit is refused before a byte is read.
    if body.size_hint().lower() > limits.body.get() {
        return Err(too_large(limits));
    }
    let mut reader = BodyReader::new(budget, client.client(), limits);
    while !body.is_end_stream() {
        let Some(frame) = reader.in_time(body.frame()).await? else {
            break;
        };
        let frame = frame.map_err(|_| cut_short())?;
        if let Ok(data) = frame.into_data() {
            let spare = client.spare_behind(&data);
            reader.take(data, spare)?;
        }
    }
    Ok(reader.finish())
}

/// Reads the body of an order to this server itself, as one piece.
pub(crate) async fn receive_order(
    body: ClientBody,
    budget: &BodyBudget,
    limits: &Limits,
) -> Result<Vec<u8>, HttpProblem> {
    // Read as a tree, a byte may become thirty.
    let limits = Limits { body: limits.body.min(LONGEST_ORDER), ..limits.clone() };
    let received = receive(body, budget, &limits).await?;
    Ok(received.rope.copy(0..received.rope.len()))
}

/// The same as JSON of this form.
pub(crate) async fn receive_json<T: DeserializeOwned>(
    body: ClientBody,
    budget: &BodyBudget,
    limits: &Limits,
) -> Result<T, HttpProblem> {
    let order = receive_order(body, budget, limits).await?;
    serde_json::from_slice(&order).map_err(|error| {
        let message = format!("the body is not a valid request of this API: {error}");
        HttpProblem::new(StatusCode::BAD_REQUEST, "bad_request", message)
    })
}

struct BodyReader<'a> {
    limits: &'a Limits,
    received: Received,
    gather: Gather,
    /// The moment at which the credit of time is used up.
    deadline: Instant,
    /// Time at the start or after the last wait, which is the time of a first piece.
    now: Instant,
}

impl<'a> BodyReader<'a> {
    fn new(budget: &BodyBudget, client: ClientId, limits: &'a Limits) -> Self {
        let received = Received::unread(budget, client);
        received.occupied().becomes(BodyState::Arriving);
        let began = received.occupied().began();
        Self { limits, deadline: began + limits.body_time, now: began, received, gather: Gather::default() }
    }

    /// Waits for `next`, which is usually there: only a wait starts a timer.
    async fn in_time<F: Future>(&mut self, next: F) -> Result<F::Output, HttpProblem> {
        let mut next = std::pin::pin!(next);
        if let Some(output) = now_or_never(next.as_mut()).await {
            return Ok(output);
        }
        let output = tokio::select! {
            () = self.received.occupied().is_wanted() => Err(too_many()),
            next = timeout_at(self.deadline, next) => next.map_err(|_| too_slow()),
        };
        self.now = Instant::now();
        output
    }

    /// Takes a piece; `spare` is the rest of its buffer, if it is known.
    fn take(&mut self, data: Bytes, spare: Option<usize>) -> Result<(), HttpProblem> {
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        let occupied = self.received.occupied();
        let now = if occupied.size() == 0 { self.now } else { Instant::now() };
        if occupied.size() + length > self.limits.body.get() {
            return Err(too_large(self.limits));
        }
        self.received.share.add(length, now, self.limits)?;
        let earned = Duration::from_millis(length * 1000 / self.limits.body_rate.get().max(1));
        self.deadline = (self.deadline + earned).min(now + 2 * self.limits.body_time);
        self.received.search.feed(&data);
        self.gather.add(data, spare);
        Ok(())
    }

    fn finish(mut self) -> Received {
        self.received.rope = std::mem::take(&mut self.gather).finish();
        // From here on it is complete, and is dropped for others only if its client leaves.
        self.received.occupied().becomes(BodyState::Complete);
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

impl From<BodyFault> for HttpProblem {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::CutShort => cut_short(),
            BodyFault::TooSlow => too_slow(),
        }
    }
}

fn too_large(limits: &Limits) -> HttpProblem {
    let message = format!("the request body is larger than {}", limits.body);
    HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

fn too_slow() -> HttpProblem {
    let message = "the request body arrived too slowly";
    HttpProblem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message)
}

fn cut_short() -> HttpProblem {
    let message = "the request body ended early or was malformed";
    HttpProblem::new(StatusCode::BAD_REQUEST, "body_cut_short", message)
}

#[cfg(test)]
mod tests {
    use super::super::gather::{KEPT, READ_BUFFER};
    use super::*;

    const A: ClientId = ClientId(1);

    fn limits(bodies: u64) -> Limits {
        Limits { bodies: plimsoll_base::Bytes::new(bodies), ..Limits::default() }
    }

    /// A piece at the front of a read buffer that it keeps alive.
    fn piece(length: usize) -> Bytes {
        Bytes::from(vec![b'x'; READ_BUFFER]).slice(..length)
    }

    #[tokio::test]
    async fn small_pieces_hold_no_buffers_and_what_is_reserved_stays_near_what_is_counted() {
        let (budget, limits) = (BodyBudget::default(), limits(u64::MAX));
        for size in [1, 700, 1100, 5000, 20_000, KEPT - 1, KEPT] {
            let mut reader = BodyReader::new(&budget, A, &limits);
            for _ in 0..(2_000_000 / size) {
                reader.take(piece(size), None).unwrap();
                let (length, block) = (reader.gather.rope.len(), &reader.gather.block);
                let occupied = length + block.capacity();
                assert!(occupied <= (length + block.len()) * 5 / 4 + 64, "{occupied} for pieces of {size}");
            }
            let received = reader.finish();
            let blocks = received.rope.chunks().filter(|chunk| chunk.len() < KEPT).count();
            assert!(blocks <= 1, "{blocks} small blocks for pieces of {size}");
        }
    }

    #[tokio::test]
    async fn the_slowest_unfinished_body_makes_room_and_not_the_newcomer() {
        let (budget, limits) = (BodyBudget::default(), limits(1000));
        let [mut stalled, mut steady] = [0; 2].map(|_| BodyReader::new(&budget, A, &limits));
        stalled.take(piece(600), None).unwrap();
        steady.take(piece(300), None).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        steady.take(piece(50), None).unwrap();
        let mut newcomer = BodyReader::new(&budget, A, &limits);
        newcomer.take(piece(100), None).unwrap();
        assert_eq!(stalled.take(piece(1), None).unwrap_err().code, "bodies_too_large");
        drop(stalled);
        steady.take(piece(500), None).unwrap();
        assert_eq!(budget.occupied(), (950, 0));
        drop((newcomer.finish(), steady.finish()));
        assert_eq!(budget.occupied(), (0, 0));
    }

    #[tokio::test]
    async fn bytes_sent_quickly_buy_no_more_than_twice_the_usual_time() {
        let (budget, mut limits) = (BodyBudget::default(), limits(u64::MAX));
        limits.body_time = Duration::from_millis(200);
        let mut reader = BodyReader::new(&budget, A, &limits);
        for _ in 0..400 {
            reader.take(piece(READ_BUFFER), None).unwrap();
        }
        let began = Instant::now();
        let stalled = reader.in_time(std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(stalled.code, "body_too_slow");
        let took = began.elapsed();
        assert!(took > limits.body_time && took < 10 * limits.body_time, "{took:?}");
    }
}
