//! Limits the memory for request bodies and for answers that are held as a whole, with a share for each
//! client.
//!
//! DECISION: beyond what is for everybody, a quarter as much is for clients that hold less than an eighth. So
//! bodies of one client refuse no other client's, and a body of the greatest size fits into an eighth. Where
//! API keys are set, only requests with a valid one have bodies that are read.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use http::StatusCode;
use plimsoll_scheduler::ClientId;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::limits::Limits;
use super::problem::HttpProblem;

/// The time over which the pace of an unfinished body is compared with that of others.
const RECENT: Duration = Duration::from_secs(1);

/// Memory of all request bodies held now, and of answers that are translated as a whole, over all
/// connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyBudget(Rc<BodyTotals>);

#[derive(Debug, Default)]
struct BodyTotals {
    occupied: Cell<u64>,
    /// The part of it held by bodies that were ordered to end and have not ended yet.
    dropped: Cell<u64>,
    /// Bytes of bodies that ended since `take_released` asked last.
    released: Cell<u64>,
    all: RefCell<Vec<Weak<OccupiedBody>>>,
}

/// Purpose for which a body is kept. One that is complete is kept for the answer to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyState {
    Arriving,
    Complete,
    /// Nobody waits for the answer any more.
    Left,
}

/// A body that takes a part of the memory.
#[derive(Debug)]
pub(crate) struct OccupiedBody {
    client: ClientId,
    began: Instant,
    counted: Cell<u64>,
    /// Start of the interval of `arrived`.
    interval: Cell<Instant>,
    /// Bytes of this interval and of the one before.
    arrived: Cell<[u64; 2]>,
    state: Cell<BodyState>,
    drop: Notify,
    is_dropped: Cell<bool>,
}

/// A part of the memory for bodies, held until it is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    budget: BodyBudget,
    body: Rc<OccupiedBody>,
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.count(0);
        let mut all = self.budget.0.all.borrow_mut();
        // One of the latest, mostly.
        if let Some(at) = all.iter().rposition(|other| other.as_ptr() == Rc::as_ptr(&self.body)) {
            all.swap_remove(at);
        }
    }
}

impl BodyShare {
    pub(super) fn body(&self) -> &Rc<OccupiedBody> {
        &self.body
    }

    /// Counts bytes that have arrived; an error if they do not fit, or the body was dropped for another.
    pub(super) fn add(&self, bytes: u64, now: Instant, limits: &Limits) -> Result<(), HttpProblem> {
        if !self.body.is_dropped.get() {
            self.body.arrived(bytes, now);
            self.count(self.body.size() + bytes);
            self.budget.make_room_for(&self.body, limits)?;
        }
        if self.body.is_dropped.get() { Err(too_many()) } else { Ok(()) }
    }

    /// Counts so many bytes in place of those that were counted.
    pub(super) fn count(&self, bytes: u64) {
        let (totals, before) = (&self.budget.0, self.body.counted.replace(bytes));
        totals.occupied.set(totals.occupied.get().saturating_sub(before).saturating_add(bytes));
        let freed = before.saturating_sub(bytes);
        totals.released.set(totals.released.get().saturating_add(freed));
        if self.body.is_dropped.get() {
            totals.dropped.set(totals.dropped.get().saturating_sub(before).saturating_add(bytes));
        }
    }

    /// Counts so many bytes in place of the former count, and makes room for them; an error without room.
    pub(super) fn resize(&self, bytes: usize, limits: &Limits) -> Result<(), HttpProblem> {
        self.count(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.budget.make_room_for(&self.body, limits)
    }
}

impl OccupiedBody {
    fn new(client: ClientId) -> Self {
        let now = Instant::now();
        Self {
            client,
            began: now,
            counted: Cell::new(0),
            interval: Cell::new(now),
            arrived: Cell::default(),
            state: Cell::new(BodyState::Complete),
            drop: Notify::new(),
            is_dropped: Cell::new(false),
        }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    pub(super) fn size(&self) -> u64 {
        self.counted.get()
    }

    /// Unless it is complete, it is held only while no other needs the memory.
    pub(super) fn becomes(&self, state: BodyState) {
        self.state.set(state);
    }

    /// Ends when the memory is needed for another body.
    pub(super) async fn is_wanted(&self) {
        self.drop.notified().await;
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

    fn arrived(&self, bytes: u64, now: Instant) {
        let mut arrived = self.arrived.get();
        if now - self.interval.get() >= RECENT {
            arrived = [self.pace(now).min(arrived[1]), 0];
            self.interval.set(now);
        }
        arrived[1] += bytes;
        self.arrived.set(arrived);
    }
}

impl BodyBudget {
    /// Bytes that bodies have freed since the last call.
    pub(crate) fn take_released(&self) -> u64 {
        self.0.released.take()
    }

    /// A share without bytes so far.
    pub(super) fn begin(&self, client: ClientId) -> BodyShare {
        let body = Rc::new(OccupiedBody::new(client));
        self.0.all.borrow_mut().push(Rc::downgrade(&body));
        BodyShare { budget: self.clone(), body }
    }

    /// Bytes of all bodies, and of those that were ordered to end.
    #[cfg(test)]
    pub(super) fn occupied(&self) -> (u64, u64) {
        (self.0.occupied.get(), self.0.dropped.get())
    }

    /// Takes a part of the memory, if no body has to be dropped for it.
    pub(super) fn share(&self, client: ClientId, bytes: u64, limits: &Limits) -> Option<BodyShare> {
        let share = self.begin(client);
        share.count(bytes);
        (self.0.occupied.get() <= self.limit_of(&share.body, limits).0).then_some(share)
    }

    /// The limit of all bodies for this client, and the client's own sum. The latter is counted only where it
    /// matters.
    fn limit_of(&self, body: &OccupiedBody, limits: &Limits) -> (u64, u64) {
        let shared = limits.bodies.get();
        if self.0.occupied.get() <= shared {
            return (shared, 0);
        }
        let its = self.occupied_by_client().get(&body.client).copied().unwrap_or_default();
        (if its <= shared / 8 { shared.saturating_add(shared / 4) } else { shared }, its)
    }

    fn occupied_by_client(&self) -> HashMap<ClientId, u64> {
        let mut occupied = HashMap::new();
        for body in self.0.all.borrow().iter().filter_map(Weak::upgrade) {
            *occupied.entry(body.client).or_default() += body.counted.get();
        }
        occupied
    }

    /// Drops others until `body` fits; an error if it does not.
    fn make_room_for(&self, body: &OccupiedBody, limits: &Limits) -> Result<(), HttpProblem> {
        loop {
            let (limit, its) = self.limit_of(body, limits);
            if self.0.occupied.get().saturating_sub(self.0.dropped.get()) <= limit {
                return Ok(());
            }
            // Bodies of clients that hold less are left alone. One of less than a second has shown no pace
            // yet.
            let holds_as_much = |_, occupied| occupied >= its;
            if !self.drop_slowest(RECENT, holds_as_much) && !self.drop_slowest(Duration::ZERO, holds_as_much)
            {
                return Err(too_many());
            }
        }
    }

    /// Drops the slowest body of this client that has at least this age; false without such a body.
    pub(super) fn drop_slowest_of(&self, client: ClientId, age: Duration) -> bool {
        self.drop_slowest(age, |other, _| other == client)
    }

    /// The same for clients and the bytes that they hold; of the client that holds the most.
    fn drop_slowest(&self, age: Duration, of: impl Fn(ClientId, u64) -> bool) -> bool {
        let now = Instant::now();
        let occupied = self.occupied_by_client();
        let occupied_by = |body: &OccupiedBody| occupied.get(&body.client).copied().unwrap_or_default();
        let all = self.0.all.borrow();
        let bodies = all.iter().filter_map(Weak::upgrade);
        let may_go = |body: &OccupiedBody| match body.state.get() {
            BodyState::Arriving => now - body.began >= age,
            BodyState::Complete => false,
            BodyState::Left => true,
        };
        let pace = |body: &OccupiedBody| (body.state.get() == BodyState::Arriving).then(|| body.pace(now));
        let slowest = bodies
            .filter(|body| !body.is_dropped.get() && may_go(body) && of(body.client, occupied_by(body)))
            // Of equally slow ones the largest frees most, and of equally large ones the oldest has waited
            // for nothing longest.
            .min_by_key(|body| {
                (u64::MAX - occupied_by(body), pace(body), u64::MAX - body.counted.get(), body.began)
            });
        let Some(slowest) = slowest else { return false };
        slowest.is_dropped.set(true);
        // Counted at once, because its memory comes back only when its task runs.
        self.0.dropped.set(self.0.dropped.get() + slowest.counted.get());
        slowest.drop.notify_one();
        true
    }
}

pub(super) fn too_many() -> HttpProblem {
    let message = "the memory reserved for request bodies is full";
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "bodies_too_large", message)
        .retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn limits() -> Limits {
        Limits { bodies: plimsoll_base::Bytes::new(6000), ..Limits::default() }
    }

    /// Shares of this size, as many of eleven as fit.
    fn shares(budget: &BodyBudget, client: ClientId, size: u64) -> Vec<BodyShare> {
        let share = |_| {
            let share = budget.begin(client);
            share.add(size, Instant::now(), &limits()).ok().map(|()| share)
        };
        (0..11).filter_map(share).collect()
    }

    #[tokio::test]
    async fn whole_bodies_of_one_client_leave_room_for_those_of_others() {
        let budget = BodyBudget::default();
        let of_a = shares(&budget, A, 900);
        assert_eq!(of_a.len(), 6, "what is for everybody");
        let of_b = shares(&budget, B, 300);
        assert_eq!(of_b.len(), 2, "an eighth");
        let c = ClientId(3);
        assert!(budget.share(A, 1, &limits()).is_none());
        assert!(budget.share(c, 700, &limits()).is_some_and(|share| share.body.size() == 700));
        // An unfinished body makes room only for those of clients that hold no more than its own.
        drop(of_a);
        let small = shares(&budget, c, 50).pop().unwrap();
        small.body.becomes(BodyState::Arriving);
        let of_a = shares(&budget, A, 900);
        assert!(of_a.len() == 5 && !small.body.is_dropped.get());
    }

    #[tokio::test]
    async fn a_body_whose_client_has_left_makes_room() {
        let budget = BodyBudget::default();
        let of_a = shares(&budget, A, 900);
        of_a.iter().for_each(|share| share.body.becomes(BodyState::Left));
        let next = budget.begin(A);
        next.body.becomes(BodyState::Arriving);
        next.add(800, Instant::now(), &limits()).unwrap();
        let dropped: Vec<&BodyShare> = of_a.iter().filter(|share| share.body.is_dropped.get()).collect();
        assert_eq!(dropped.len(), 1);
        dropped[0].body.is_wanted().await;
        assert!(dropped[0].add(1, Instant::now(), &limits()).is_err());
        drop((of_a, next));
        assert_eq!(budget.occupied(), (0, 0));
        assert!(budget.0.all.borrow().is_empty());
    }
}
