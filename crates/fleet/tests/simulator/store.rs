//! Simulated fleet store in place of etcd: revisions, leases, transactions, and the complete history.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_fleet::{
    ClaimGuard, FleetKey, NumberedSeats, Record, Seat, StoreChange, Transaction, TransactionOutcome,
    Versioned,
};

#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) revision: u64,
    pub(crate) value: Vec<u8>,
    lease: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) revision: u64,
    pub(crate) records: BTreeMap<FleetKey, Kept>,
    /// The changes of each revision.
    pub(crate) history: Vec<StoreChange>,
    pub(crate) leases: BTreeMap<u64, Duration>,
    pub(crate) next_lease: u64,
    /// A compare that claims leave out.
    pub(crate) without: Option<ClaimGuard>,
    pub(crate) conflicts: u64,
}

impl Store {
    pub(crate) fn apply(&mut self, transaction: &Transaction, lease: u64) -> TransactionOutcome {
        let is_claim = transaction.writes.iter().any(|write| matches!(write.key, FleetKey::Turn(_)));
        let holds = transaction.compares.iter().all(|compare| {
            let is_left_out = is_claim && Some(compare.guard) == self.without;
            is_left_out || self.records.get(&compare.key).map_or(0, |kept| kept.revision) == compare.revision
        });
        if !holds {
            self.conflicts += 1;
            return TransactionOutcome::Conflict;
        }
        // A write with a lease that has ended is refused; 0 is a write without one.
        let is_leased = lease != 0 && transaction.writes.iter().any(|write| write.leased);
        if is_leased && !self.leases.contains_key(&lease) {
            return TransactionOutcome::Conflict;
        }
        self.revision += 1;
        for write in &transaction.writes {
            self.write(write.key.clone(), write.value.clone(), (write.leased && lease != 0).then_some(lease));
        }
        TransactionOutcome::Applied(self.revision)
    }

    fn write(&mut self, key: FleetKey, value: Option<Vec<u8>>, lease: Option<u64>) {
        let revision = self.revision;
        match &value {
            Some(value) => {
                drop(self.records.insert(key.clone(), Kept { revision, value: value.clone(), lease }))
            }
            None => drop(self.records.remove(&key)),
        }
        self.history.push(StoreChange { key, revision, value });
    }

    pub(crate) fn put(&mut self, key: FleetKey, value: Option<Vec<u8>>) {
        self.revision += 1;
        self.write(key, value, None);
    }

    pub(crate) fn grant(&mut self, end: Duration) -> u64 {
        self.next_lease += 1;
        self.leases.insert(self.next_lease, end);
        self.next_lease
    }

    pub(crate) fn keep_alive(&mut self, lease: u64, end: Duration) -> bool {
        self.leases.get_mut(&lease).map(|at| *at = end).is_some()
    }

    pub(crate) fn revoke(&mut self, lease: u64) {
        self.leases.remove(&lease);
        let gone = self.records.iter().filter(|(_, kept)| kept.lease == Some(lease));
        let gone: Vec<FleetKey> = gone.map(|(key, _)| key.clone()).collect();
        if !gone.is_empty() {
            self.revision += 1;
            gone.into_iter().for_each(|key| self.write(key, None, None));
        }
    }

    pub(crate) fn expire(&mut self, now: Duration) {
        let ended = self.leases.iter().filter(|(_, end)| **end <= now).map(|(lease, _)| *lease);
        for lease in ended.collect::<Vec<_>>() {
            self.revoke(lease);
        }
    }

    pub(crate) fn hosts_without_lease(&self) -> usize {
        let hosts = self.records.iter().filter(|(key, _)| matches!(key, FleetKey::Host(_)));
        hosts.filter(|(_, kept)| kept.lease.is_none()).count()
    }

    pub(crate) fn all(&self) -> Vec<StoreChange> {
        let records = self.records.iter().map(|(key, kept)| StoreChange {
            key: key.clone(),
            revision: kept.revision,
            value: Some(kept.value.clone()),
        });
        records.collect()
    }

    pub(crate) fn seats(&self, model: &str) -> NumberedSeats {
        let (first, last) =
            [0, u32::MAX].map(|number| FleetKey::Seat { model: model.to_owned(), number }).into();
        let kept = self.records.range(first..=last).filter_map(|(key, kept)| match key {
            FleetKey::Seat { number, .. } => Some((*number, kept)),
            _ => None,
        });
        let read =
            |kept: &Kept| Some(Versioned { revision: kept.revision, record: Record::read(&kept.value)? });
        kept.filter_map(|(number, kept)| Some((number, read(kept)?))).collect()
    }

    pub(crate) fn seat(&self, model: &str) -> Option<Versioned<Seat>> {
        let kept = self.records.get(&FleetKey::Seat { model: model.to_owned(), number: 0 })?;
        Some(Versioned { revision: kept.revision, record: Record::read(&kept.value)? })
    }
}
