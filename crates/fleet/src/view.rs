//! Keeps one daemon's copy of the fleet's records: read once from the store, then updated by every change.

mod seating;

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::keys::FleetKey;
use super::records::{
    Drain, HostCopies, HostRecord, HostState, ModelOffer, OfferList, Record, Revocation, Seat, Turn,
};
use seating::Seating;

/// A record and the revision at which it was last written.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    pub revision: u64,
    pub record: Record<T>,
}

/// One change of the store; no value is a deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreChange {
    pub key: FleetKey,
    pub revision: u64,
    pub value: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
pub struct FleetView {
    /// The last revision that it knows.
    pub revision: u64,
    pub hosts: BTreeMap<String, Versioned<HostRecord>>,
    pub offers: BTreeMap<String, Versioned<OfferList>>,
    pub states: BTreeMap<String, Versioned<HostState>>,
    /// By model and number.
    pub seats: BTreeMap<(String, u32), Versioned<Seat>>,
    pub turns: BTreeMap<String, Versioned<Turn>>,
    pub drains: BTreeMap<String, Versioned<Drain>>,
    /// By serial number.
    pub revoked: BTreeMap<String, Versioned<Revocation>>,
    /// By host.
    pub copies: BTreeMap<String, Versioned<HostCopies>>,
    /// Lives of hosts that did not show that they are the hosts of their records. They take no part.
    pub distrusted: BTreeMap<String, String>,
    /// Revisions of records that cannot be read. Records that depend on one are left alone.
    pub unreadable: BTreeMap<FleetKey, u64>,
    seating: Seating,
}

impl FleetView {
    /// A view of the whole store at one revision.
    pub fn at(revision: u64, records: impl IntoIterator<Item = StoreChange>) -> Self {
        let mut view = Self::default();
        records.into_iter().for_each(|record| view.apply(&record));
        view.revision = revision;
        view
    }

    /// Takes a change that the watch delivers. An older one than the record at hand changes nothing.
    pub fn apply(&mut self, change: &StoreChange) {
        self.revision = self.revision.max(change.revision);
        self.enter(change);
    }

    /// Takes a change of this daemon's own, which the watch has not delivered yet, nor what came before it.
    pub(crate) fn enter(&mut self, change: &StoreChange) {
        let Self { hosts, offers, states, turns, drains, revoked, copies, unreadable, .. } = self;
        let is_read = match &change.key {
            FleetKey::Host(name) => put(hosts, name.clone(), change),
            FleetKey::Offers(digest) => put(offers, digest.clone(), change),
            FleetKey::State(name) => put(states, name.clone(), change),
            FleetKey::Seat { model, number } => {
                let (seats, name) = (&mut self.seats, (model.clone(), *number));
                let seated = |seats: &BTreeMap<_, Versioned<Seat>>| {
                    seats.get(&name).map(|seat| seat.record.body.clone())
                };
                let before = seated(seats);
                let is_read = put(seats, name.clone(), change);
                self.seating.exchange(&name, before.as_ref(), seated(seats).as_ref());
                is_read
            }
            FleetKey::Turn(name) => put(turns, name.clone(), change),
            FleetKey::Drain(name) => put(drains, name.clone(), change),
            FleetKey::Revoked(serial) => put(revoked, serial.clone(), change),
            FleetKey::Copies(name) => put(copies, name.clone(), change),
        };
        if is_read {
            unreadable.remove(&change.key);
        } else {
            unreadable.insert(change.key.clone(), change.revision);
        }
    }

    /// All records, as the store has them. One that cannot be read comes without its content.
    pub fn records(&self) -> impl Iterator<Item = StoreChange> {
        let unreadable = self.unreadable.iter().map(|(key, revision)| StoreChange {
            key: key.clone(),
            revision: *revision,
            value: Some(Vec::new()),
        });
        let named = |of: fn(String) -> FleetKey| move |name: &String| of(name.clone());
        let seat = |(model, number): &(String, u32)| FleetKey::Seat { model: model.clone(), number: *number };
        reported(&self.hosts, named(FleetKey::Host))
            .chain(reported(&self.offers, named(FleetKey::Offers)))
            .chain(reported(&self.states, named(FleetKey::State)))
            .chain(reported(&self.seats, seat))
            .chain(reported(&self.turns, named(FleetKey::Turn)))
            .chain(reported(&self.drains, named(FleetKey::Drain)))
            .chain(reported(&self.revoked, named(FleetKey::Revoked)))
            .chain(reported(&self.copies, named(FleetKey::Copies)))
            .chain(unreadable)
    }

    /// Records that the store has, as far as known.
    pub fn count(&self) -> usize {
        let Self { hosts, offers, states, seats, turns, drains, revoked, copies, unreadable, .. } = self;
        let advice = states.len() + turns.len() + drains.len() + revoked.len() + copies.len();
        hosts.len() + offers.len() + seats.len() + advice + unreadable.len()
    }

    /// The revision at which the key was last written, as far as known; 0 if it is not there.
    pub fn revision_of(&self, key: &FleetKey) -> u64 {
        let known = match key {
            FleetKey::Host(name) => self.hosts.get(name).map(|it| it.revision),
            FleetKey::Offers(digest) => self.offers.get(digest).map(|it| it.revision),
            FleetKey::State(name) => self.states.get(name).map(|it| it.revision),
            FleetKey::Seat { model, number } => {
                self.seats.get(&(model.clone(), *number)).map(|it| it.revision)
            }
            FleetKey::Turn(name) => self.turns.get(name).map(|it| it.revision),
            FleetKey::Drain(name) => self.drains.get(name).map(|it| it.revision),
            FleetKey::Revoked(serial) => self.revoked.get(serial).map(|it| it.revision),
            FleetKey::Copies(name) => self.copies.get(name).map(|it| it.revision),
        };
        known.or_else(|| self.unreadable.get(key).copied()).unwrap_or(0)
    }

    pub fn host(&self, name: &str) -> Option<&HostRecord> {
        self.hosts.get(name).map(|host| &host.record.body)
    }

    /// The first seat of a model: the only one, unless the model may have replicas.
    pub fn seat(&self, model: &str) -> Option<&Versioned<Seat>> {
        self.seats.get(&(model.to_owned(), 0))
    }

    /// All seats of a model, with their numbers.
    pub fn seats_of(&self, model: &str) -> impl Iterator<Item = (u32, &Versioned<Seat>)> {
        let (first, last) = ((model.to_owned(), 0), (model.to_owned(), u32::MAX));
        self.seats.range(first..=last).map(|((_, number), seat)| (*number, seat))
    }

    /// Seats of a model whose hosts are registered with the lives that were given them.
    pub fn living_seats(&self, model: &str) -> impl Iterator<Item = (u32, &Versioned<Seat>)> {
        self.seats_of(model).filter(move |(_, seat)| self.living_host(&seat.record.body).is_some())
    }

    /// The lowest number of a seat that no living host has.
    pub fn vacant(&self, model: &str) -> u32 {
        let taken: Vec<u32> = self.living_seats(model).map(|(number, _)| number).collect();
        (0..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX)
    }

    /// False for a life of a host that something else has answered for, or whose certificate counts no more.
    pub fn trusts(&self, name: &str, host: &HostRecord) -> bool {
        self.distrusted.get(name).is_none_or(|life| *life != host.incarnation)
    }

    /// The host of the seat, if it is registered with the life that was given the seat, and is trusted.
    pub fn living_host(&self, seat: &Seat) -> Option<&HostRecord> {
        let host = self.host(&seat.host).filter(|host| host.incarnation == seat.incarnation)?;
        self.trusts(&seat.host, host).then_some(host)
    }

    /// True if the life that was given the seat is registered, trusted or not.
    pub fn is_registered(&self, seat: &Seat) -> bool {
        self.host(&seat.host).is_some_and(|host| host.incarnation == seat.incarnation)
    }

    pub fn offer(&self, host: &HostRecord, model: &str) -> Option<&ModelOffer> {
        self.offers.get(&host.offers)?.record.body.models.get(model)
    }

    /// Seats on this life of the host, with model, token and record.
    pub fn seats_on<'a>(
        &'a self,
        name: &'a str,
        incarnation: &'a str,
    ) -> impl Iterator<Item = (&'a str, u64, &'a Seat)> {
        let seats = self.numbered_seats_on(name, incarnation);
        seats.map(|(model, _, seat)| (model, seat.revision, &seat.record.body))
    }

    /// The same with the number of each seat.
    pub fn numbered_seats_on<'a>(
        &'a self,
        name: &'a str,
        incarnation: &'a str,
    ) -> impl Iterator<Item = (&'a str, u32, &'a Versioned<Seat>)> {
        self.seating.on(name).filter_map(move |key| {
            let seat = self.seats.get(key)?;
            (seat.record.body.incarnation == incarnation).then_some((key.0.as_str(), key.1, seat))
        })
    }

    /// True if an operator wants no more models on the host, or may want it: the record cannot be read.
    pub fn drains(&self, name: &str) -> bool {
        self.drains.contains_key(name)
            || (!self.unreadable.is_empty()
                && self.unreadable.contains_key(&FleetKey::Drain(name.to_owned())))
    }

    /// True if a later reading of the store, at this revision, cannot follow on this view. It then has a
    /// record of a time that this view covers, and this view has another one. Revocations are read apart and
    /// are left out, and so are copies, of which a host with an earlier version does not tell.
    pub fn contradicts(&self, later: &Self) -> bool {
        let (at, until) = (self.revision, later.revision);
        is_forked(&self.hosts, &later.hosts, at, until)
            || is_forked(&self.offers, &later.offers, at, until)
            || is_forked(&self.states, &later.states, at, until)
            || is_forked(&self.seats, &later.seats, at, until)
            || is_forked(&self.turns, &later.turns, at, until)
            || is_forked(&self.drains, &later.drains, at, until)
    }

    /// Memory of a host that no seat and no unseated model takes.
    pub fn free(&self, name: &str, host: &HostRecord) -> Bytes {
        let promised = self.seating.promised(name, &host.incarnation);
        host.capacity.saturating_sub(host.unseated).saturating_sub(promised)
    }
}

/// Records of one kind as the store has them.
fn reported<K, T: Serialize + DeserializeOwned>(
    records: &BTreeMap<K, Versioned<T>>,
    key: impl Fn(&K) -> FleetKey,
) -> impl Iterator<Item = StoreChange> {
    records.iter().map(move |(name, kept)| StoreChange {
        key: key(name),
        revision: kept.revision,
        value: Some(kept.record.write()),
    })
}

/// True if a record of `later`, written at `at` or before, is not the one that `former` had then. One that
/// this daemon wrote after `until` is not in a reading of that revision.
fn is_forked<K: Ord, T: PartialEq>(
    former: &BTreeMap<K, Versioned<T>>,
    later: &BTreeMap<K, Versioned<T>>,
    at: u64,
    until: u64,
) -> bool {
    let mut covered = later.iter().filter(|(_, kept)| kept.revision <= at);
    covered.any(|(name, kept)| former.get(name).is_none_or(|had| had != kept && had.revision <= until))
}

/// Puts or deletes a record; false if the value cannot be read.
fn put<K: Ord, T: Serialize + DeserializeOwned>(
    records: &mut BTreeMap<K, Versioned<T>>,
    name: K,
    change: &StoreChange,
) -> bool {
    // A claim of this daemon is entered before the watch delivers it.
    if records.get(&name).is_some_and(|at_hand| at_hand.revision > change.revision) {
        return true;
    }
    let record = change.value.as_deref().map(Record::read);
    let is_read = !matches!(record, Some(None));
    match record.flatten() {
        Some(record) => drop(records.insert(name, Versioned { revision: change.revision, record })),
        None => drop(records.remove(&name)),
    }
    is_read
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: FleetKey, revision: u64, value: &str) -> StoreChange {
        StoreChange { key, revision, value: (!value.is_empty()).then(|| value.into()) }
    }

    #[test]
    fn an_unreadable_record_keeps_its_revision_until_it_is_mended() {
        let key = FleetKey::Drain("a".to_owned());
        let mut view = FleetView::default();
        view.apply(&change(key.clone(), 4, "garbage"));
        assert_eq!((view.revision_of(&key), view.drains.len(), view.unreadable.len()), (4, 0, 1));
        view.apply(&change(key.clone(), 5, r#"{"schema":1,"leave":true}"#));
        assert_eq!((view.revision_of(&key), view.drains.len(), view.unreadable.len()), (5, 1, 0));
        view.apply(&change(key.clone(), 4, ""));
        assert_eq!(view.drains.len(), 1, "an older change is no news");
        view.apply(&change(key.clone(), 6, ""));
        assert_eq!((view.revision_of(&key), view.revision), (0, 6));
    }

    #[test]
    fn a_reading_of_another_history_contradicts_the_view() {
        let (a, b) = (FleetKey::Drain("a".to_owned()), FleetKey::Drain("b".to_owned()));
        let (leaves, stays) = (r#"{"schema":1,"leave":true}"#, r#"{"schema":1,"leave":false}"#);
        let mut view = FleetView::at(9, [change(a.clone(), 4, leaves)]);
        let contradicts = |view: &FleetView, revision, records: &[StoreChange]| {
            view.contradicts(&FleetView::at(revision, records.to_vec()))
        };
        for follows in [
            vec![change(a.clone(), 4, leaves)],
            vec![change(a.clone(), 10, stays), change(b.clone(), 11, leaves)],
            // Deleted since.
            vec![],
        ] {
            assert!(!contradicts(&view, 12, &follows), "{follows:?}");
        }
        for forked in [
            vec![change(a.clone(), 4, stays)],
            vec![change(a.clone(), 3, leaves)],
            vec![change(a.clone(), 4, leaves), change(b.clone(), 9, leaves)],
        ] {
            assert!(contradicts(&view, 12, &forked), "{forked:?}");
        }
        // A write of this daemon's own, of which another one does not know yet.
        view.enter(&change(a.clone(), 14, stays));
        assert!(!contradicts(&view, 12, &[change(a.clone(), 4, leaves)]));
        assert!(contradicts(&view, 15, &[change(a, 4, leaves)]));
    }
}
