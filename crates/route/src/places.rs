//! Divides the limited number of connections among clients, so that none can take all of them.
//!
//! A connection whose requests were all refused, or asked for what everybody may see, is a newcomer. With its
//! first request that is let in, its client holds the place.
//!
//! DECISION: a place is taken without a wait, and the client that holds the most makes room: of its places
//! the longest idle one is closed or, if none is idle, one is closed after its present answer. So whoever is
//! let in is served, however many others come. Newcomers take half of the places at most and displace each
//! other alone. They have an eighth beyond the places of others, because a key shows only in a request.
//!
//! DECISION: a client that holds as many places as any other waits for one of its own. An eighth of the
//! places may wait; further connections are left in the kernel's queue for a moment, and then refused.
//!
//! DECISION: some answers have no end. Where more than an eighth of the places wait for the end of one, the
//! first of them is cut off.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_scheduler::ClientId;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// The longest wait for a place.
const WAIT: Duration = Duration::from_secs(30);
/// Time that a new connection has for its request before another one may displace it.
const MOMENT: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(10);

/// Place of a client: a connection, or a conversation whose client has left.
#[derive(Debug)]
pub(crate) struct Place {
    /// The client that its address is.
    stranger: ClientId,
    client: Cell<ClientId>,
    /// A request of the client was let in.
    is_settled: Cell<bool>,
    /// Its request may be let in, and waits for another of its client to end.
    is_waiting: Cell<bool>,
    /// Since when it has carried no request.
    pub(super) idle_since: Cell<Option<Instant>>,
    was_answered: Cell<bool>,
    /// Another client needs it. It counts no more, and is closed after its present answer.
    is_leaving: Cell<bool>,
    /// It is closed at once.
    is_cut: Cell<bool>,
    /// The closing task checks it again.
    pub(super) changed: Notify,
}

impl Place {
    fn new(client: ClientId) -> Rc<Self> {
        Rc::new(Self {
            stranger: client,
            client: Cell::new(client),
            is_settled: Cell::default(),
            is_waiting: Cell::default(),
            idle_since: Cell::new(Some(Instant::now())),
            was_answered: Cell::default(),
            is_leaving: Cell::default(),
            is_cut: Cell::default(),
            changed: Notify::new(),
        })
    }

    pub(super) fn client(&self) -> ClientId {
        self.client.get()
    }

    /// The client that it is without a key.
    pub(super) fn stranger(&self) -> ClientId {
        self.stranger
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.get()
    }

    fn is_newcomer(&self) -> bool {
        !self.is_settled.get() && !self.is_waiting.get()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.get()
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// The place of a client whose key is not valid is a newcomer's.
    pub(super) fn unsettle(&self) {
        self.is_settled.set(false);
        self.client.set(self.stranger);
    }

    pub(super) fn begin(&self) {
        self.idle_since.set(None);
    }

    pub(super) fn end(&self) {
        self.idle_since.set(Some(Instant::now()));
        self.was_answered.set(true);
        // Its time without a request may be shorter than the one that is waited for.
        if !self.is_settled.get() || self.is_leaving.get() {
            self.changed.notify_one();
        }
    }

    /// Ends when another client needs it.
    pub(super) async fn is_wanted(&self) {
        while !self.is_leaving.get() {
            self.changed.notified().await;
        }
    }

    fn cut(&self) {
        self.is_cut.set(true);
        self.changed.notify_one();
    }

    fn leave(&self) {
        self.is_leaving.set(true);
        self.changed.notify_one();
    }
}

/// The places of one listener.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    all: RefCell<Vec<Rc<Place>>>,
    /// Places that were left since memory was given back.
    left: Cell<usize>,
    changed: Notify,
}

/// A place that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct OccupiedPlace {
    places: Rc<Places>,
    pub(super) place: Rc<Place>,
}

impl Drop for OccupiedPlace {
    fn drop(&mut self) {
        let places = &self.places;
        places.all.borrow_mut().retain(|one| !Rc::ptr_eq(one, &self.place));
        places.left.set(places.left.get() + 1);
        places.changed.notify_one();
    }
}

impl OccupiedPlace {
    /// Gives the place to the client whose request is let in; false if it holds as many places as any other
    /// and none is left. Then `make_room` may end another request of it.
    pub(super) fn settle(&self, client: ClientId, make_room: impl FnOnce() -> bool) -> bool {
        let place = &self.place;
        if !place.is_settled.get() {
            let places = &self.places;
            let is_full = places.len() > places.most && places.count(Place::is_settled) >= places.most;
            if is_full && !self.places.make_room_for(client) && !make_room() {
                return false;
            }
            place.is_settled.set(true);
            place.is_leaving.set(false);
        }
        place.client.set(client);
        true
    }

    /// Settles, after a wait for another request of the client if need be; false if the wait was too long or
    /// is not possible.
    pub(super) async fn settle_in_time(&self, client: ClientId, make_room: impl Fn() -> bool) -> bool {
        if self.settle(client, &make_room) {
            return true;
        }
        if self.places.is_full_of_waiting() {
            return false;
        }
        self.place.is_waiting.set(true);
        let _waiting = Waiting(self);
        let end = Instant::now() + WAIT;
        while Instant::now() < end {
            // A connection that becomes idle notifies nobody.
            let _ = timeout(GLANCE, self.places.changed.notified()).await;
            if self.settle(client, &make_room) {
                return true;
            }
        }
        false
    }
}

/// Ends the wait of a place, also where its request is given up.
struct Waiting<'a>(&'a OccupiedPlace);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.place.is_waiting.set(false);
        self.0.places.changed.notify_one();
    }
}

impl Places {
    pub(super) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, all: RefCell::default(), left: Cell::default(), changed: Notify::new() })
    }

    /// Takes a place for a newcomer.
    pub(super) fn enter(self: &Rc<Self>, client: ClientId) -> OccupiedPlace {
        while self.is_full_of_newcomers() && self.free_of_largest(Place::is_newcomer) {}
        let place = Place::new(client);
        self.all.borrow_mut().push(Rc::clone(&place));
        OccupiedPlace { places: Rc::clone(self), place }
    }

    pub(super) fn len(&self) -> usize {
        self.all.borrow().len()
    }

    /// Leaves new connections in the kernel's queue for a moment, while those before them have not been heard
    /// or wait.
    pub(super) async fn calm(&self) {
        let end = Instant::now() + MOMENT;
        let is_new = |place: &Place| {
            let is_fresh = |since: Instant| since.elapsed() < MOMENT;
            place.is_newcomer() && !place.was_answered.get() && place.idle_since.get().is_none_or(is_fresh)
        };
        let is_crowded =
            || self.is_full_of_newcomers() && self.count(is_new) == self.count(Place::is_newcomer);
        while (is_crowded() || self.is_full_of_waiting() || self.is_behind()) && Instant::now() < end {
            let _ = timeout(GLANCE, self.changed.notified()).await;
        }
    }

    /// An eighth of the places, at least one.
    fn eighth(&self) -> usize {
        (self.most / 8).max(1)
    }

    /// True while many connections that made room are still open, because their tasks have not run. New ones
    /// would cost the time of those tasks.
    fn is_behind(&self) -> bool {
        let all = self.all.borrow();
        let is_closed = |place: &&Rc<Place>| place.is_leaving.get() && place.idle_since.get().is_some();
        all.iter().filter(is_closed).count() > self.eighth()
    }

    fn is_full_of_waiting(&self) -> bool {
        self.len() >= self.most && self.count(|place| place.is_waiting.get()) >= self.eighth()
    }

    pub(super) async fn at_most(&self, count: usize) {
        while self.len() > count {
            self.changed.notified().await;
        }
    }

    /// Places that were left and not yet asked for here.
    pub(super) fn left(&self) -> &Cell<usize> {
        &self.left
    }

    fn is_full_of_newcomers(&self) -> bool {
        let least = self.eighth();
        // Nothing is counted while there are few.
        self.len() >= least && {
            let free = self.most.saturating_sub(self.count(Place::is_settled));
            self.count(Place::is_newcomer) >= free.min(self.most / 2).max(least)
        }
    }

    fn count(&self, of: impl Fn(&Place) -> bool) -> usize {
        self.all.borrow().iter().filter(|place| !place.is_leaving.get() && of(place)).count()
    }

    fn largest(&self, of: impl Fn(&Place) -> bool) -> Option<(ClientId, usize)> {
        let mut occupied: HashMap<ClientId, usize> = HashMap::new();
        for place in self.all.borrow().iter().filter(|place| !place.is_leaving.get() && of(place)) {
            *occupied.entry(place.client.get()).or_default() += 1;
        }
        occupied.into_iter().max_by_key(|(_, count)| *count)
    }

    fn free_of_largest(&self, of: impl Fn(&Place) -> bool) -> bool {
        let largest = self.largest(&of);
        largest.is_some_and(|(client, _)| self.free(|place| of(place) && place.client.get() == client))
    }

    fn make_room_for(&self, client: ClientId) -> bool {
        let is_its = |place: &Place| place.is_settled.get() && place.client.get() == client;
        let its = self.count(is_its);
        match self.largest(Place::is_settled) {
            Some((largest, occupied)) if occupied > its => {
                self.free(|place| place.is_settled.get() && place.client.get() == largest)
            }
            // It holds as many as any other, so it makes room itself.
            _ => self.free(|place| is_its(place) && place.idle_since.get().is_some()),
        }
    }

    /// Frees one of these places; false if there is none.
    fn free(&self, of: impl Fn(&Place) -> bool) -> bool {
        let all = self.all.borrow();
        let places = || all.iter().filter(|place| !place.is_leaving.get() && of(place));
        // A request that has just arrived may lie unread in its socket, which is why one that was answered
        // goes first.
        let idle =
            places().filter_map(|place| Some((!place.was_answered.get(), place.idle_since.get()?, place)));
        let longest = idle.min_by_key(|(is_new, since, _)| (*is_new, *since)).map(|(.., place)| place);
        let freed = longest.or_else(|| places().next()).inspect(|place| place.leave()).is_some();
        let mut unended = all.iter().filter(|place| {
            place.is_leaving.get() && !place.is_cut.get() && place.idle_since.get().is_none()
        });
        if unended.clone().count() > self.eighth() {
            unended.next().into_iter().for_each(|place| place.cut());
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn settled(places: &Rc<Places>, client: ClientId) -> Option<OccupiedPlace> {
        let occupied = places.enter(ClientId(0));
        occupied.place.begin();
        occupied.settle(client, || false).then_some(occupied)
    }

    #[test]
    fn a_client_that_holds_the_most_makes_room_for_others_and_gets_no_more_itself() {
        let places = Places::new(64);
        let of_a: Vec<OccupiedPlace> = (0..64).filter_map(|_| settled(&places, A)).collect();
        assert_eq!(of_a.len(), 64);
        let of_b: Vec<OccupiedPlace> = (0..64).filter_map(|_| settled(&places, B)).collect();
        assert_eq!(of_b.len(), 32, "half each");
        assert_eq!(of_a.iter().filter(|occupied| occupied.place.is_leaving()).count(), 32);
        // Answers without an end are cut off, all but an eighth.
        assert_eq!(of_a.iter().filter(|occupied| occupied.place.is_cut()).count(), 24);
        // An idle one of its own makes room.
        of_b[3].place.end();
        assert!(settled(&places, B).is_some() && of_b[3].place.is_leaving());
        assert!(settled(&places, ClientId(3)).is_some());
    }

    #[test]
    fn newcomers_displace_each_other_and_nobody_else() {
        let places = Places::new(64);
        let known: Vec<OccupiedPlace> = (0..20).filter_map(|_| settled(&places, A)).collect();
        let new: Vec<OccupiedPlace> = (0..100).map(|_| places.enter(B)).collect();
        let stay: Vec<usize> = (0..100).filter(|at| !new[*at].place.is_leaving()).collect();
        assert_eq!(stay, (68..100).collect::<Vec<_>>(), "half of the places, and the latest");
        assert!(known.iter().all(|occupied| !occupied.place.is_leaving()));
        // One of another client stays, among however many of the first.
        let other = places.enter(ClientId(9));
        let more: Vec<OccupiedPlace> = (0..100).map(|_| places.enter(B)).collect();
        assert!(!other.place.is_leaving());
        // With more known ones, newcomers keep an eighth.
        drop((other, new, more));
        let known: Vec<OccupiedPlace> = (0..64).filter_map(|_| settled(&places, A)).chain(known).collect();
        let new: Vec<OccupiedPlace> = (0..100).map(|_| places.enter(B)).collect();
        assert_eq!(new.iter().filter(|occupied| !occupied.place.is_leaving()).count(), 8);
        assert_eq!(known.iter().filter(|occupied| !occupied.place.is_leaving()).count(), 64);
    }

    #[test]
    fn an_answered_newcomer_goes_before_one_whose_request_may_be_on_its_way() {
        let places = Places::new(4);
        let [silent, answered] = [places.enter(A), places.enter(A)];
        answered.place.begin();
        answered.place.end();
        let _next = places.enter(A);
        assert!(answered.place.is_leaving() && !silent.place.is_leaving());
    }
}
