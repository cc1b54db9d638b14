//! Decides what one daemon does in a fleet: it takes events and returns actions, and does no I/O itself.
//!
//! A daemon has two roles. As a router (`router`), it finds the host for each request, and claims a seat for
//! a model that has none. A seat is the record that a model is loaded on a host. As a host (`seat_holder`),
//! the daemon checks the fencing tokens of requests and gives up seats. `registration` writes the host's own
//! records to the store.
//!
//! While the store does not answer, loaded models are served. No seat is claimed, and no model is loaded or
//! released.

mod copying;
mod doubts;
mod pauses;
mod registration;
mod replicas;
mod router;
mod seat_holder;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use plimsoll_base::{Bytes, Reason};

use self::doubts::SeatDoubts;
use self::registration::Registration;
use self::router::{Demand, PendingClaim};
use self::seat_holder::{LocalRun, OccupiedSeat};
use super::claim::{Transaction, Write};
use super::records::{HostCopies, OfferList, RunPhase, Seat};
use super::source::{NewsSource, SourceTrust};
use super::view::{FleetView, StoreChange, Versioned};

/// Identity and memory of this host.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    pub name: String,
    /// Different for every start of the daemon.
    pub life: String,
    pub machine: String,
    pub address: String,
    pub version: String,
    pub capacity: Bytes,
    /// Seeds the draws of placement and the pauses after conflicts.
    pub seed: u64,
    /// Longest time that a request waits for a seat.
    pub wait: Duration,
    /// Hosts up to which all watch the store.
    pub watchers: usize,
}

/// Token of a seat, as it goes with a request: the host's life, and the revision of the claim.
///
/// The life is part of it, because revisions begin again when the store is restored from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatToken {
    pub incarnation: String,
    pub revision: u64,
}

impl fmt::Display for SeatToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.incarnation, self.revision)
    }
}

impl FromStr for SeatToken {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (incarnation, revision) = text.rsplit_once(':').ok_or(())?;
        let revision = revision.parse().map_err(|_| ())?;
        Ok(Self { incarnation: incarnation.to_owned(), revision })
    }
}

/// Outcome of a transaction, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// Applied at this revision.
    Applied(u64),
    /// A compare did not hold.
    Conflict,
    /// The store takes no more data, and has applied nothing.
    Full,
    /// No answer came. It may be applied, also later.
    Unknown,
}

/// Seats of one model with their numbers.
pub type NumberedSeats = Vec<(u32, Versioned<Seat>)>;

/// Affinity of a request to one of several hosts that serve its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Digest of the prompt's beginning: requests with the same one find their slots warm.
    pub prompt: Option<u64>,
    /// Requests for the model that this very host has in progress.
    pub here: u32,
}

#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// Where the news come from, from the next reading on.
    NewsFrom(NewsSource),
    /// All records of the store at a revision.
    Read {
        revision: u64,
        records: Vec<StoreChange>,
    },
    /// News of the watch.
    Changed(Vec<StoreChange>),
    /// Revoked certificates, as the store itself has them; the rest comes from another host.
    Revoked(Vec<StoreChange>),
    /// The store does not answer.
    StoreSilent {
        cause: String,
    },
    StoreAnswers,
    /// The store has been restored: revisions that were given out may be given out again.
    StoreWentBack,
    /// The host has a lease; what was written with the former one is gone, or goes.
    Leased,
    /// Offers of the host, with their digest.
    Offers {
        digest: String,
        list: OfferList,
    },
    /// Models whose files the host lacks and may copy, and the copy in progress.
    Copies(HostCopies),
    /// Hosts that may serve a model at a time, where they are more than one.
    Replicas(BTreeMap<String, u32>),
    /// A client's request for a model.
    Wanted {
        request: u64,
        model: String,
        affinity: Affinity,
    },
    /// A request that another daemon passed on.
    Hop {
        request: u64,
        model: String,
        token: SeatToken,
    },
    /// The client has left, or has its answer.
    Ended {
        request: u64,
    },
    Transacted {
        operation: u64,
        outcome: TransactionOutcome,
    },
    /// The seats of a model as a quorum of the store has them; `None` means no answer.
    SeatRead {
        operation: u64,
        seats: Option<NumberedSeats>,
    },
    /// A model of this host has begun to load, is loaded, or is gone.
    Run {
        model: String,
        run: Option<(RunPhase, Bytes)>,
        idle: bool,
    },
    /// The host of a request refused its seat, or cannot be reached.
    HostFailed {
        request: u64,
        model: String,
        host: String,
    },
    /// Hosts that were ordered to hold a seat have declined it again and again.
    SeatsDeclined,
    /// The server at a host's address has not authenticated as the host.
    HostDistrusted {
        host: String,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FleetEffect {
    Transact {
        operation: u64,
        transaction: Transaction,
    },
    /// Reads the seat of a model from a quorum of the store.
    ReadSeat {
        operation: u64,
        model: String,
    },
    /// This host answers the request itself.
    Serve {
        request: u64,
    },
    /// Another host answers the request.
    Forward {
        request: u64,
        host: String,
        address: String,
        token: SeatToken,
    },
    Refuse {
        request: u64,
        reason: Reason,
    },
    /// The model has no seat here any more: it leaves when it is idle.
    Release {
        model: String,
    },
    /// A host, which may be this one, is to copy the model's files from another.
    Copy {
        model: String,
        host: String,
        address: String,
    },
    /// Another host is registered under this host's name, at this address.
    NameTaken {
        address: String,
    },
    /// The store has fallen silent, or answers again: idle models stay meanwhile.
    HoldIdle {
        occupied: bool,
    },
    /// The store has been restored, which its records show; the host has begun another life.
    StoreRestored,
    /// This host sent records that the store does not have.
    NewsDoubted {
        host: String,
    },
    /// The news source is followed no more, and the store is read itself.
    LeaveSource,
    WakeAt(Duration),
}

/// Purpose of a transaction or of a reading.
#[derive(Clone, Debug)]
enum Operation {
    Claim { model: String, nonce: String },
    Resolve { model: String, nonce: String },
    Confirm { model: String },
    ConfirmReported { model: String },
    GiveUp { seat: OccupiedSeat },
    Register { writes: Vec<Write> },
    Publish,
}

#[derive(Debug)]
pub struct FleetNode {
    settings: NodeSettings,
    /// This daemon's view of the fleet.
    pub view: FleetView,
    /// Since when the store has not answered, and why.
    silent: Option<(Duration, String)>,
    incarnation: String,
    /// Lives since the start of the daemon.
    lives: u32,
    trust: SourceTrust,
    doubts: SeatDoubts,
    /// The last revision at which the store has applied a transaction of this daemon.
    applied: u64,
    operations: BTreeMap<u64, Operation>,
    next_operation: u64,
    random: u64,
    offers: (String, OfferList),
    /// Models whose files the host lacks and copies, once it has lacked any.
    copies: Option<HostCopies>,
    claims: BTreeMap<String, PendingClaim>,
    runs: BTreeMap<String, LocalRun>,
    /// Requests that wait until a seat is confirmed, with the tokens that they brought.
    confirming: BTreeMap<String, Vec<(u64, u64)>>,
    /// The last token of each model that was given up. A lower or equal one is never used again, whether or
    /// not the store has answered.
    burnt: BTreeMap<String, u64>,
    /// Seats that are to be deleted.
    giving_up: BTreeMap<OccupiedSeat, Duration>,
    /// Seats of this host for which no request came, since when.
    unclaimed: BTreeMap<OccupiedSeat, Duration>,
    /// Requests that were passed on, with model and host.
    passed_on: BTreeMap<u64, (String, String)>,
    /// Hosts that may serve a model at a time, where they are more than one.
    replicas: BTreeMap<String, u32>,
    /// Hosts that are not trusted, since when.
    distrusted: BTreeMap<String, Duration>,
    /// Hosts that left the store, since when.
    gone: BTreeMap<String, (Duration, super::records::HostRecord)>,
    registration: Registration,
    /// Idle models are held.
    holds_idle: bool,
}

impl FleetNode {
    pub fn new(settings: NodeSettings) -> Self {
        Self {
            incarnation: settings.life.clone(),
            random: settings.seed | 1,
            settings,
            view: FleetView::default(),
            silent: Some((Duration::ZERO, "this host has not read the fleet's store yet".to_owned())),
            lives: 0,
            trust: SourceTrust::default(),
            doubts: SeatDoubts::default(),
            applied: 0,
            operations: BTreeMap::new(),
            next_operation: 0,
            offers: <(String, OfferList)>::default(),
            copies: None,
            claims: BTreeMap::new(),
            runs: BTreeMap::new(),
            confirming: BTreeMap::new(),
            burnt: BTreeMap::new(),
            giving_up: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            distrusted: BTreeMap::new(),
            passed_on: BTreeMap::new(),
            replicas: BTreeMap::new(),
            gone: BTreeMap::new(),
            registration: Registration::default(),
            holds_idle: false,
        }
    }

    /// False while the store is silent.
    pub fn store_answers(&self) -> bool {
        self.silent.is_none()
    }

    /// The revision that each later reading of the store has reached, unless the store was restored.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    pub fn incarnation(&self) -> &str {
        &self.incarnation
    }

    /// Models that this host holds: the revision of the seat, if it has one, and the memory.
    pub fn occupied(&self) -> impl Iterator<Item = (&str, Option<u64>, Bytes)> {
        self.runs.iter().map(|(model, run)| (model.as_str(), run.token, run.need))
    }

    /// Takes an event at `now` and appends what is to be done.
    pub fn on_event(&mut self, now: Duration, event: FleetEvent, effects: &mut Vec<FleetEffect>) {
        use FleetEvent::{Ended, Hop, Wanted};
        // A request leaves the state below unchanged, and reading it takes time with the size of the fleet.
        let is_request = matches!(event, Wanted { .. } | Hop { .. } | Ended { .. });
        match event {
            FleetEvent::NewsFrom(source) => self.take_source(source),
            FleetEvent::Read { revision, records } => {
                self.read(now, FleetView::at(revision, records), effects);
            }
            FleetEvent::Changed(changes) => {
                let before: Vec<_> = self.hosts_of(&changes);
                changes.iter().for_each(|change| self.view.apply(change));
                self.note_gone(now, &before.into_iter().collect());
            }
            FleetEvent::Revoked(records) => records.iter().for_each(|record| self.view.enter(record)),
            FleetEvent::StoreSilent { cause } => self.fall_silent(now, cause, effects),
            FleetEvent::StoreAnswers => self.silent = None,
            FleetEvent::StoreWentBack => self.begin_life(effects),
            FleetEvent::Leased => self.registration = Registration::default(),
            FleetEvent::Offers { digest, list } => {
                self.offers = (digest, list);
                self.registration.is_stale = true;
            }
            FleetEvent::Copies(copies) => self.copies_changed(copies),
            FleetEvent::Replicas(replicas) => self.replicas = replicas,
            FleetEvent::Wanted { request, model, affinity } => {
                self.route(now, Demand { request, affinity }, &model, None, effects)
            }
            FleetEvent::Hop { request, model, token } => self.hop(request, &model, &token, effects),
            FleetEvent::Ended { request } => self.forget(request),
            FleetEvent::Transacted { operation, outcome } => {
                self.transacted(now, operation, outcome, effects)
            }
            FleetEvent::SeatRead { operation, seats } => self.seat_read(now, operation, seats, effects),
            FleetEvent::Run { model, run, idle } => self.run_changed(now, &model, run, idle, effects),
            FleetEvent::HostFailed { request, model, host } => {
                self.host_failed(now, request, &model, &host, effects)
            }
            FleetEvent::SeatsDeclined => self.doubt_news(now, effects),
            FleetEvent::HostDistrusted { host } => self.distrust(now, host),
            FleetEvent::Tick => self.trust_again(now),
        }
        if self.silent.is_none() {
            if !is_request {
                self.check_runs(now, effects);
                self.sweep(now, effects);
            }
            self.retry_claims(now, effects);
            self.register(now, effects);
        }
        let occupied = self.silent.is_some();
        if std::mem::replace(&mut self.holds_idle, occupied) != occupied {
            effects.push(FleetEffect::HoldIdle { occupied });
        }
        effects.extend(self.next_timer(now).map(FleetEffect::WakeAt));
    }

    fn begin(&mut self, operation: Operation) -> u64 {
        self.next_operation += 1;
        self.operations.insert(self.next_operation, operation);
        self.next_operation
    }

    fn transact(&mut self, operation: Operation, transaction: Transaction, effects: &mut Vec<FleetEffect>) {
        let operation = self.begin(operation);
        effects.push(FleetEffect::Transact { operation, transaction });
    }

    fn transacted(
        &mut self,
        now: Duration,
        operation: u64,
        outcome: TransactionOutcome,
        effects: &mut Vec<FleetEffect>,
    ) {
        let operation = self.operations.remove(&operation);
        // Not for one of a former life: the store was restored since.
        if let (Some(_), TransactionOutcome::Applied(revision)) = (&operation, outcome) {
            self.applied = self.applied.max(revision);
        }
        match operation {
            Some(Operation::Claim { model, nonce }) => self.claimed(now, model, nonce, outcome, effects),
            Some(Operation::GiveUp { seat }) => self.gave_up(now, &seat, outcome),
            Some(Operation::Register { writes }) => self.registered(now, writes, outcome, effects),
            Some(Operation::Publish) => self.registration.published(now, outcome),
            Some(
                Operation::Resolve { .. } | Operation::Confirm { .. } | Operation::ConfirmReported { .. },
            )
            | None => {}
        }
    }

    fn seat_read(
        &mut self,
        now: Duration,
        operation: u64,
        seats: Option<NumberedSeats>,
        effects: &mut Vec<FleetEffect>,
    ) {
        match self.operations.remove(&operation) {
            Some(Operation::Resolve { model, nonce }) => self.resolved(now, model, &nonce, seats, effects),
            Some(Operation::Confirm { model }) => self.confirmed(now, &model, seats, effects),
            Some(Operation::ConfirmReported { model }) => {
                self.reported_confirmed(now, &model, seats, effects)
            }
            _ => {}
        }
    }

    fn fall_silent(&mut self, now: Duration, cause: String, effects: &mut Vec<FleetEffect>) {
        self.trust.was_silent = true;
        let since = self.silent.as_ref().map_or(now, |(since, _)| *since);
        self.silent = Some((since, cause));
        for claim in std::mem::take(&mut self.claims).into_values() {
            let requests = claim.waiting.into_iter().map(|(demand, _)| demand.request);
            let reason = self.silence(now);
            effects.extend(requests.map(|request| FleetEffect::Refuse { request, reason: reason.clone() }));
        }
    }

    /// The reason for everything that is not done while the store is silent.
    fn silence(&self, now: Duration) -> Reason {
        let (since, cause) = self.silent.clone().unwrap_or_default();
        let text = "the fleet's store does not answer, so no model is loaded; loaded models are served";
        Reason::new("store_unreachable", text)
            .fact("seconds", now.saturating_sub(since).as_secs())
            .because(Reason::new("store_answer", cause))
    }

    /// Begins another life: tokens of the former one are worth nothing, and what is held has no seat.
    fn begin_life(&mut self, effects: &mut Vec<FleetEffect>) {
        self.lives += 1;
        self.incarnation = format!("{}.{}", self.settings.life, self.lives);
        (self.applied, self.doubts) = (0, SeatDoubts::default());
        self.trust.end_doubts();
        self.operations.clear();
        self.burnt.clear();
        (self.giving_up, self.unclaimed) = Default::default();
        self.view = FleetView::default();
        self.silent = Some((Duration::ZERO, "the fleet's store was restored and is read again".to_owned()));
        self.registration = Registration::default();
        for run in self.runs.values_mut() {
            (run.token, run.leaves) = (None, false);
        }
        let waiting = std::mem::take(&mut self.claims).into_values().flat_map(|claim| claim.waiting);
        let hops = std::mem::take(&mut self.confirming).into_values().flatten();
        let requests = waiting.map(|(demand, _)| demand.request).chain(hops.map(|(request, _)| request));
        let reason = Reason::new("store_restored", "the fleet's store was restored; send the request again");
        effects.extend(requests.map(|request| FleetEffect::Refuse { request, reason: reason.clone() }));
    }

    fn next_timer(&self, now: Duration) -> Option<Duration> {
        let claims = self.claims.values().filter_map(|claim| claim.again);
        let given = self.giving_up.values().copied();
        let unclaimed = self.unclaimed.values().map(|since| *since + seat_holder::UNCLAIMED);
        let timers = claims.chain(given).chain(unclaimed).chain(self.registration.again);
        timers.filter(|at| *at > now).min()
    }
}
