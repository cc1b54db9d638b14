//! Request bodies, read whole before a model is chosen.
//!
//! Three limits apply: the size of one body, the memory of all bodies, and the pace of arrival. When memory
//! is full, the slowest unfinished body is dropped.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use plimsoll_scheduler::ClientId;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::connection::ClientConnection;
use super::engine_body::BodyFault;
use super::gather::Gather;
use super::limits::Limits;
use super::model_key::ModelKeySearch;
use super::problem::HttpProblem;
use super::rope::Rope;

/// The time over which the pace of an unfinished body is compared with that of others.
const RECENT: Duration = Duration::from_secs(1);

/// Memory of all request bodies held now, over all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyBudget(Rc<BodyTotals>);

#[derive(Debug, Default)]
struct BodyTotals {
    held: Cell<u64>,
    /// The part of it held by bodies that were told to end and have not ended yet.
    dropped: Cell<u64>,
    /// Bytes of bodies that ended since `take_released` asked last.
    released: Cell<u64>,
    unfinished: RefCell<Vec<Weak<Upload>>>,
}

/// A request body that is still arriving.
#[derive(Debug)]
struct Upload {
    began: Instant,
    counted: Cell<u64>,
    /// Start of the interval of `arrived`.
    interval: Cell<Instant>,
    /// Bytes of this interval and of the one before.
    arrived: Cell<[u64; 2]>,
    drop: Notify,
    is_dropped: Cell<bool>,
}

/// A part of the memory for bodies, held until it is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    budget: BodyBudget,
    bytes: u64,
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        let totals = &self.budget.0;
        totals.held.set(totals.held.get().saturating_sub(self.bytes));
        totals.released.set(totals.released.get().saturating_add(self.bytes));
    }
}

/// The body of a client's request, unread.
#[derive(Debug)]
pub(crate) struct ClientBody {
    pub(crate) incoming: Incoming,
    pub(crate) client: Rc<ClientConnection>,
}

/// A complete request body, which counts as held until it is dropped.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) client: ClientId,
    pub(crate) rope: Rope,
    pub(crate) search: ModelKeySearch,
    budget: BodyBudget,
    upload: Rc<Upload>,
}

impl Drop for Received {
    fn drop(&mut self) {
        let (totals, counted) = (&self.budget.0, self.upload.counted.get());
        totals.held.set(totals.held.get().saturating_sub(counted));
        totals.released.set(totals.released.get().saturating_add(counted));
        if self.upload.is_dropped.get() {
            totals.dropped.set(totals.dropped.get().saturating_sub(counted));
        }
    }
}

impl Received {
    /// A body of which nothing is kept here.
    pub(super) fn unread(budget: &BodyBudget, client: ClientId) -> Self {
        Self {
            client,
            rope: Rope::default(),
            search: ModelKeySearch::default(),
            budget: budget.clone(),
            upload: Rc::new(Upload::new()),
        }
    }

    /// Puts another body in the place of this one, and counts its bytes.
    pub(crate) fn replace(&mut self, rope: Rope, limits: &Limits) -> Result<(), HttpProblem> {
        let length = u64::try_from(rope.len()).unwrap_or(u64::MAX);
        if length > limits.body.get() {
            return Err(too_large(limits));
        }
        let (held, counted) = (&self.budget.0.held, self.upload.counted.replace(length));
        held.set(held.get().saturating_sub(counted).saturating_add(length));
        self.rope = rope;
        Ok(())
    }
}

impl BodyBudget {
    /// Bytes that bodies have freed since the last call.
    pub(crate) fn take_released(&self) -> u64 {
        self.0.released.take()
    }

    /// Takes a part of the memory, if no body has to be dropped for it.
    pub(super) fn share(&self, bytes: u64, limits: &Limits) -> Option<BodyShare> {
        let held = self.0.held.get().saturating_add(bytes);
        (held <= limits.bodies.get()).then(|| {
            self.0.held.set(held);
            BodyShare { budget: self.clone(), bytes }
        })
    }

    fn remaining_after_drops(&self) -> u64 {
        self.0.held.get().saturating_sub(self.0.dropped.get())
    }

    /// Drops the slowest body that has been arriving for `age` at least; false if there is none.
    pub(crate) fn drop_slowest(&self, age: Duration) -> bool {
        let now = Instant::now();
        let mut unfinished = self.0.unfinished.borrow_mut();
        // A body that failed or was dropped leaves a dead entry behind.
        unfinished.retain(|upload| upload.strong_count() > 0);
        let uploads = unfinished.iter().filter_map(Weak::upgrade);
        let slowest = uploads
            .filter(|upload| !upload.is_dropped.get() && now - upload.began >= age)
            // Of equally slow ones the largest frees most.
            .min_by_key(|upload| (upload.pace(now), u64::MAX - upload.counted.get()));
        let Some(slowest) = slowest else { return false };
        slowest.is_dropped.set(true);
        // Counted at once, because its memory comes back only when its task runs.
        self.0.dropped.set(self.0.dropped.get() + slowest.counted.get());
        slowest.drop.notify_one();
        true
    }
}

impl Upload {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            counted: Cell::new(0),
            interval: Cell::new(now),
            arrived: Cell::default(),
            drop: Notify::new(),
            is_dropped: Cell::new(false),
        }
    }

    /// Bytes that arrived within the last interval or two.
    fn pace(&self, now: Instant) -> u64 {
        let [before, current] = self.arrived.get();
        // Two intervals, so that no body looks slow right after one begins.
        match now - self.interval.get() {
            age if age < RECENT => before + current,
            age if age < 2 * RECENT => current,
            _ => 0,
        }
    }

    fn count(&self, bytes: u64, now: Instant) {
        let mut arrived = self.arrived.get();
        if now - self.interval.get() >= RECENT {
            arrived = [self.pace(now).min(arrived[1]), 0];
            self.interval.set(now);
        }
        arrived[1] += bytes;
        self.arrived.set(arrived);
        self.counted.set(self.counted.get() + bytes);
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
    let mut reader = BodyReader::new(budget, limits);
    reader.received.client = client.client;
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
    fn new(budget: &BodyBudget, limits: &'a Limits) -> Self {
        let received = Received::unread(budget, ClientId::default());
        let upload = &received.upload;
        budget.0.unfinished.borrow_mut().push(Rc::downgrade(upload));
        let began = upload.began;
        Self { limits, deadline: began + limits.body_time, now: began, received, gather: Gather::default() }
    }

    /// Waits for `next`, which is usually there: only a wait starts a timer.
    async fn in_time<F: Future>(&mut self, next: F) -> Result<F::Output, HttpProblem> {
        let mut next = std::pin::pin!(next);
        if let Some(output) = now_or_never(next.as_mut()).await {
            return Ok(output);
        }
        let output = tokio::select! {
            () = self.received.upload.drop.notified() => Err(too_many()),
            next = timeout_at(self.deadline, next) => next.map_err(|_| too_slow()),
        };
        self.now = Instant::now();
        output
    }

    /// Takes a piece; `spare` is the rest of its buffer, if it is known.
    fn take(&mut self, data: Bytes, spare: Option<usize>) -> Result<(), HttpProblem> {
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        let (upload, budget) = (&self.received.upload, &self.received.budget);
        if upload.is_dropped.get() {
            return Err(too_many());
        }
        let now = if upload.counted.get() == 0 { self.now } else { Instant::now() };
        upload.count(length, now);
        budget.0.held.set(budget.0.held.get() + length);
        if upload.counted.get() > self.limits.body.get() {
            return Err(too_large(self.limits));
        }
        while budget.remaining_after_drops() > self.limits.bodies.get() {
            // A body of less than a second has shown no pace yet.
            if !budget.drop_slowest(RECENT) && !budget.drop_slowest(Duration::ZERO) {
                return Err(too_many());
            }
        }
        if upload.is_dropped.get() {
            return Err(too_many());
        }
        let earned = Duration::from_millis(length * 1000 / self.limits.body_rate.get().max(1));
        self.deadline = (self.deadline + earned).min(now + 2 * self.limits.body_time);
        self.received.search.feed(&data);
        self.gather.add(data, spare);
        Ok(())
    }

    fn finish(mut self) -> Received {
        self.received.rope = std::mem::take(&mut self.gather).finish();
        // From here on it is complete and is no longer dropped for others.
        let finished = Rc::as_ptr(&self.received.upload);
        let unfinished = &self.received.budget.0.unfinished;
        unfinished.borrow_mut().retain(|upload| upload.as_ptr() != finished);
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

fn too_many() -> HttpProblem {
    let message = "the memory reserved for request bodies is full";
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "bodies_too_large", message)
        .retry_after(Duration::from_secs(1))
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
            let mut reader = BodyReader::new(&budget, &limits);
            for _ in 0..(2_000_000 / size) {
                reader.take(piece(size), None).unwrap();
                let (length, block) = (reader.gather.rope.len(), &reader.gather.block);
                let held = length + block.capacity();
                assert!(held <= (length + block.len()) * 5 / 4 + 64, "{held} for pieces of {size}");
            }
            let received = reader.finish();
            let blocks = received.rope.chunks().filter(|chunk| chunk.len() < KEPT).count();
            assert!(blocks <= 1, "{blocks} small blocks for pieces of {size}");
        }
    }

    #[tokio::test]
    async fn the_slowest_unfinished_body_makes_room_and_not_the_newcomer() {
        let (budget, limits) = (BodyBudget::default(), limits(1000));
        let [mut stalled, mut steady] = [0; 2].map(|_| BodyReader::new(&budget, &limits));
        stalled.take(piece(600), None).unwrap();
        steady.take(piece(300), None).unwrap();
        tokio::time::sleep(RECENT * 2).await;
        steady.take(piece(50), None).unwrap();
        let mut newcomer = BodyReader::new(&budget, &limits);
        newcomer.take(piece(100), None).unwrap();
        assert!(stalled.received.upload.is_dropped.get());
        assert_eq!(stalled.take(piece(1), None).unwrap_err().code, "bodies_too_large");
        drop(stalled);
        steady.take(piece(500), None).unwrap();
        assert_eq!(budget.0.held.get(), 950);
        drop((newcomer.finish(), steady.finish()));
        assert_eq!((budget.0.held.get(), budget.0.dropped.get()), (0, 0));
    }

    #[tokio::test]
    async fn bytes_sent_quickly_buy_no_more_than_twice_the_usual_time() {
        let (budget, mut limits) = (BodyBudget::default(), limits(u64::MAX));
        limits.body_time = Duration::from_millis(200);
        let mut reader = BodyReader::new(&budget, &limits);
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
