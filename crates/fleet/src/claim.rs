//! Assigns a model to a host (a claim) by one transaction of the fleet's store. So two hosts never load it
//! for the same request.
//!
//! A seat is the fleet's record that a model is loaded on a host. The transaction compares every record on
//! which the choice of the host relied, so it fails if one of them has changed.
//!
//! DECISION: a host's registration holds what a claim depends on: capacity, memory without a seat, and offers
//! (the models that the host can serve). The state record holds advice only. So a host that becomes idle or
//! busy makes no claim fail.

use super::keys::FleetKey;
use super::node::TransactionOutcome;
use super::place::SeatPlan;
use super::records::{Record, Seat, Turn};
use super::view::FleetView;

/// Change of the fleet that a compare of a transaction guards against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimGuard {
    /// Another daemon seated the model.
    Seat,
    /// The host has begun another life, or holds more without a seat.
    Host,
    /// Another daemon was promised memory of the host.
    Turn,
    /// The host of the former seat has come back.
    FormerHost,
    /// The host is to be drained.
    Drain,
    /// A model that is to leave has moved already.
    Evicted,
}

impl ClaimGuard {
    pub const ALL: [Self; 6] =
        [Self::Seat, Self::Host, Self::Turn, Self::FormerHost, Self::Drain, Self::Evicted];
}

/// Condition of a transaction: the key was last written at this revision; 0 means that it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub guard: ClaimGuard,
    pub key: FleetKey,
    pub revision: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub key: FleetKey,
    /// `None` deletes the key.
    pub value: Option<Vec<u8>>,
    /// The key goes with the writer's lease.
    pub leased: bool,
}

impl Write {
    pub fn put(key: FleetKey, value: Vec<u8>) -> Self {
        Self { key, value: Some(value), leased: false }
    }

    pub fn delete(key: FleetKey) -> Self {
        Self { key, value: None, leased: false }
    }

    #[must_use]
    pub fn leased(self) -> Self {
        Self { leased: true, ..self }
    }
}

/// Writes that are applied together, if every compare holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transaction {
    pub compares: Vec<Compare>,
    pub writes: Vec<Write>,
}

/// DECISION: without a lease nothing is written that goes with one, and what was written with a former one
/// counts as unknown. A registration without a lease outlives its host, whose models are then refused for
/// ever.
impl Transaction {
    fn is_leased(&self) -> bool {
        self.writes.iter().any(|write| write.leased)
    }

    /// False for a transaction that waits for a lease: 0 is no lease.
    pub fn may_go_with(&self, lease: u64) -> bool {
        lease != 0 || !self.is_leased()
    }

    /// The outcome of a transaction that went with the lease `sent`, for a host that has the lease `present`
    /// now.
    pub fn outcome_of(&self, outcome: TransactionOutcome, sent: u64, present: u64) -> TransactionOutcome {
        match outcome {
            TransactionOutcome::Applied(_) if self.is_leased() && sent != present => {
                TransactionOutcome::Unknown
            }
            outcome => outcome,
        }
    }
}

/// Transaction that gives a model its seat.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub model: String,
    pub seat: Seat,
    pub transaction: Transaction,
}

impl Claim {
    /// The claim of `plan`, which was made from `view`; `None` if a later version wrote what it would write
    /// over.
    pub fn new(view: &FleetView, model: &str, plan: SeatPlan, nonce: String) -> Option<Self> {
        let SeatPlan { host, number, incarnation, need, cause, evicts } = plan;
        let seat_key = FleetKey::Seat { model: model.to_owned(), number };
        let former = view.seats.get(&(model.to_owned(), number));
        if view.unreadable.contains_key(&seat_key) || former.is_some_and(|seat| !seat.record.is_known()) {
            return None;
        }
        let compare = |guard, key: FleetKey| Compare { guard, revision: view.revision_of(&key), key };
        let mut compares = vec![
            compare(ClaimGuard::Seat, seat_key.clone()),
            compare(ClaimGuard::Host, FleetKey::Host(host.clone())),
            compare(ClaimGuard::Turn, FleetKey::Turn(host.clone())),
            compare(ClaimGuard::Drain, FleetKey::Drain(host.clone())),
        ];
        // Taken from a host only as long as that host is as gone as it was seen to be.
        if let Some(former) = former.map(|seat| &seat.record.body.host).filter(|name| **name != host) {
            compares.push(compare(ClaimGuard::FormerHost, FleetKey::Host(former.clone())));
        }
        let evicted =
            evicts.iter().map(|left| FleetKey::Seat { model: left.model.clone(), number: left.number });
        let evicted: Vec<_> = evicted.collect();
        compares.extend(evicted.iter().map(|key| compare(ClaimGuard::Evicted, key.clone())));
        let evicts = evicts.into_iter().map(|left| left.token).collect();
        let seat = Seat { host: host.clone(), incarnation, need, nonce, cause, evicts };
        let mut writes = vec![
            Write::put(seat_key, Record::new(seat.clone()).write()),
            Write::put(FleetKey::Turn(host), Record::new(Turn {}).write()),
        ];
        writes.extend(evicted.into_iter().map(Write::delete));
        Some(Self { model: model.to_owned(), seat, transaction: Transaction { compares, writes } })
    }
}
