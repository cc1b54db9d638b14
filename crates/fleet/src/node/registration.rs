//! Registers this host in the fleet's store, and publishes which models it has loaded.

use std::time::Duration;

use plimsoll_base::Bytes;

use super::doubts::CONFLICTS;
use super::{FleetEffect, FleetNode, Operation, TransactionOutcome};
use crate::claim::{ClaimGuard, Compare, Transaction, Write};
use crate::keys::FleetKey;
use crate::records::{HostRecord, HostState, Record, RunState};
use crate::view::StoreChange;

/// Pause before another attempt. It doubles while the store does not take one, up to 64 times the first.
const AGAIN: Duration = Duration::from_millis(200);
const MOST_DOUBLINGS: u32 = 6;
/// Pause while another host has the name.
const TAKEN: Duration = Duration::from_secs(1);
/// Least time between two publications of the state.
const COALESCED: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Registration {
    /// The record in the store may not be what it should be.
    pub(super) is_stale: bool,
    /// The record was written with the present lease.
    is_leased: bool,
    state_is_stale: bool,
    is_waiting: bool,
    state_is_waiting: bool,
    /// Not before.
    pub(super) again: Option<Duration>,
    state_again: Option<Duration>,
    /// Revision at which this host last wrote its state, which no other host writes.
    pub(super) state_written: u64,
    /// Attempts that the store has not taken, one after the other.
    failures: u32,
    /// Conflicts, one after the other.
    conflicts: u32,
}

impl Default for Registration {
    fn default() -> Self {
        let (again, state_again) = (None, None);
        Self {
            is_stale: true,
            is_leased: false,
            state_is_stale: true,
            is_waiting: false,
            state_is_waiting: false,
            again,
            state_again,
            state_written: 0,
            failures: 0,
            conflicts: 0,
        }
    }
}

impl Registration {
    pub(super) fn state_changed(&mut self) {
        self.state_is_stale = true;
    }

    pub(super) fn published(&mut self, now: Duration, outcome: TransactionOutcome) {
        self.state_is_waiting = false;
        match outcome {
            TransactionOutcome::Applied(revision) => self.state_written = revision,
            _ => self.state_is_stale = true,
        }
        self.state_again = Some(now + COALESCED);
        self.again = self.again.or(self.state_again.filter(|_| self.state_is_stale));
    }
}

impl FleetNode {
    pub(super) fn registered(
        &mut self,
        now: Duration,
        writes: Vec<Write>,
        outcome: TransactionOutcome,
        effects: &mut Vec<FleetEffect>,
    ) {
        let registration = &mut self.registration;
        // The registration is compared with the view, so an unknown outcome needs no other treatment.
        (registration.is_waiting, registration.is_stale) = (false, true);
        registration.failures = match outcome {
            TransactionOutcome::Applied(_) | TransactionOutcome::Conflict => 0,
            TransactionOutcome::Full | TransactionOutcome::Unknown => registration.failures.saturating_add(1),
        };
        registration.conflicts = match outcome {
            TransactionOutcome::Conflict => registration.conflicts.saturating_add(1),
            _ => 0,
        };
        let is_doubtful = registration.conflicts >= CONFLICTS;
        let pause = AGAIN * (1 << registration.failures.min(MOST_DOUBLINGS));
        match outcome {
            TransactionOutcome::Applied(revision) => {
                registration.is_leased = true;
                for Write { key, value, .. } in writes {
                    self.view.enter(&StoreChange { key, revision, value });
                }
            }
            _ => self.registration.again = Some(now + self.share(pause)),
        }
        if is_doubtful {
            self.doubt_news(now, effects);
        }
    }

    /// Writes what the store does not know yet of this host.
    pub(super) fn register(&mut self, now: Duration, effects: &mut Vec<FleetEffect>) {
        let is_early = |again: Option<Duration>| again.is_some_and(|at| at > now);
        let registration = &self.registration;
        let offers_are_known = !self.offers.0.is_empty();
        // Another host may have deleted the record of equal offers in the moment in which this one relied on
        // it.
        let is_stale = registration.is_stale || !self.view.offers.contains_key(&self.offers.0);
        if is_stale && !registration.is_waiting && !is_early(registration.again) && offers_are_known {
            self.registration.again = None;
            self.write_host(now, effects);
        }
        let registration = &mut self.registration;
        if registration.is_leased && registration.state_is_stale && !registration.state_is_waiting {
            if is_early(registration.state_again) {
                registration.again = registration.again.or(registration.state_again);
                return;
            }
            (registration.state_is_stale, registration.state_is_waiting) = (false, true);
            let runs = self.runs.iter();
            let runs =
                runs.map(|(model, run)| (model.clone(), RunState { phase: run.phase, idle: run.idle }));
            let value = Record::new(HostState { runs: runs.collect() }).write();
            let write = Write::put(FleetKey::State(self.settings.name.clone()), value).leased();
            let writes = std::iter::once(write).chain(self.copies_record()).collect();
            let transaction = Transaction { compares: Vec::new(), writes };
            self.transact(Operation::Publish, transaction, effects);
        }
    }

    fn write_host(&mut self, now: Duration, effects: &mut Vec<FleetEffect>) {
        let name = &self.settings.name;
        let present = self.view.hosts.get(name);
        let mut record = present.filter(|host| host.record.is_known()).map(|host| host.record.clone());
        let body = self.host_record();
        // Two hosts of one name: the one that is registered keeps it, as long as its lease lasts.
        if let Some(other) = present.map(|host| &host.record.body).filter(|it| it.machine != body.machine) {
            let taken = FleetEffect::NameTaken { address: other.address.clone() };
            self.registration.again = Some(now + TAKEN);
            // Only the store itself is believed in this.
            return if self.trust.is_reported() {
                self.doubt_news(now, effects)
            } else {
                effects.push(taken)
            };
        }
        let has_offers = self.view.offers.contains_key(&body.offers);
        if self.registration.is_leased && has_offers && present.is_some_and(|it| it.record.body == body) {
            self.registration.is_stale = false;
            return;
        }
        // Fields of a later version are kept.
        let record = match record.take() {
            Some(record) => Record { body, ..record },
            None => Record::new(body),
        };
        let host_key = FleetKey::Host(name.clone());
        let compare = |guard, key: FleetKey, revision| Compare { guard, key, revision };
        let mut compares = vec![
            compare(ClaimGuard::Host, host_key.clone(), self.view.revision_of(&host_key)),
            compare(ClaimGuard::Turn, FleetKey::Turn(name.clone()), self.turn()),
        ];
        // A seat may have been moved away while this host was gone. Its model would then be counted nowhere.
        let seated = self.runs.iter().filter_map(|(model, run)| Some((model, run.number, run.token?)));
        compares.extend(seated.map(|(model, number, token)| {
            compare(ClaimGuard::Seat, FleetKey::Seat { model: model.clone(), number }, token)
        }));
        let mut writes = vec![Write::put(host_key, record.write()).leased()];
        if !has_offers {
            let offers = Record::new(self.offers.1.clone()).write();
            writes.push(Write::put(FleetKey::Offers(self.offers.0.clone()), offers));
        }
        writes.extend(self.former_offers().into_iter().map(Write::delete));
        self.registration.is_waiting = true;
        let transaction = Transaction { compares, writes: writes.clone() };
        self.transact(Operation::Register { writes }, transaction, effects);
    }

    /// The record of this host's former offers, if no other host has the same.
    fn former_offers(&self) -> Option<FleetKey> {
        let (name, hosts) = (&self.settings.name, &self.view.hosts);
        let former = &hosts.get(name)?.record.body.offers;
        let is_shared = hosts.iter().any(|(other, host)| other != name && host.record.body.offers == *former);
        let is_left = *former != self.offers.0 && !is_shared && self.view.offers.contains_key(former);
        is_left.then(|| FleetKey::Offers(former.clone()))
    }

    /// Memory of a run without a seat, if the store knows of exactly what this host holds.
    pub(super) fn occupied_unseated(&self, model: &str) -> Option<Bytes> {
        let run = self.runs.get(model).filter(|run| run.token.is_none() && !run.leaves)?;
        let registered = self.view.host(&self.settings.name)?;
        let is_exact = *registered == self.host_record() && registered.unseated == self.unseated();
        is_exact.then_some(run.need)
    }

    /// The registration after `held` of a model without a seat, for the transaction that makes the seat.
    pub(super) fn with_less_unseated(&self, occupied: Bytes) -> Option<Write> {
        let registered = self.view.hosts.get(&self.settings.name).filter(|_| !occupied.is_zero())?;
        let mut record = registered.record.clone();
        record.body.unseated = record.body.unseated.saturating_sub(occupied);
        Some(Write::put(FleetKey::Host(self.settings.name.clone()), record.write()).leased())
    }

    fn unseated(&self) -> Bytes {
        self.runs.values().filter(|run| run.token.is_none() && !run.leaves).map(|run| run.need).sum()
    }

    fn turn(&self) -> u64 {
        self.view.revision_of(&FleetKey::Turn(self.settings.name.clone()))
    }

    fn host_record(&self) -> HostRecord {
        let settings = &self.settings;
        let seated =
            self.view.seats_on(&settings.name, &self.incarnation).map(|(_, _, seat)| seat.need).sum();
        HostRecord {
            incarnation: self.incarnation.clone(),
            machine: settings.machine.clone(),
            address: settings.address.clone(),
            version: settings.version.clone(),
            capacity: settings.capacity,
            // Models beyond the capacity leave first: their memory is promised to seats already.
            unseated: self.unseated().min(settings.capacity.saturating_sub(seated)),
            offers: self.offers.0.clone(),
        }
    }
}
