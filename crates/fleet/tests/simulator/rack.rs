//! Simulation of a rack failure: real routing logic against one fleet store, which answers from a queue and
//! reports changes late.
//!
//! The time of a claim is the simulated time from the request until its host is chosen. It includes
//! placement, the store's queue, a real etcd's answer time (`latency`), and every conflict.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    Affinity, FleetEffect, FleetEvent, FleetKey, FleetNode, HostRecord, ModelOffer, NodeSettings, OfferList,
    Record, Seat, SeatCause, StoreChange, Transaction, Turn, Write,
};

use super::latency;
use super::store::Store;

/// One placement of a router among ten thousand hosts (`crates/fleet/tests/size.rs`), and one way of the
/// network.
const PLACEMENT: Duration = Duration::from_micros(2_110);
const WAY: Duration = Duration::from_micros(500);
/// What keeps the next transaction waiting: three members on two processors took 1 500 a second.
const TRANSACTION: Duration = Duration::from_micros(667);
/// Shortest and mean further lag of a watch.
const LAG: Duration = Duration::from_millis(5);
const MORE_LAG: f64 = 0.010;

/// Size of the fleet, and how it dies.
#[derive(Clone, Copy)]
pub(crate) struct RackSettings {
    pub(crate) hosts: u64,
    pub(crate) dead: u64,
    pub(crate) models_a_host: u64,
    pub(crate) routers: usize,
    /// Time over which the models of the dead hosts are asked for.
    pub(crate) requested_within: Duration,
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct RackFigures {
    pub(crate) requested: usize,
    pub(crate) back: usize,
    pub(crate) applied: u64,
    pub(crate) lost: u64,
    /// Times of the claims, in order.
    pub(crate) times: Vec<Duration>,
}

impl RackFigures {
    pub(crate) fn lost_percent(&self) -> u64 {
        self.lost * 100 / (self.lost + self.applied).max(1)
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        self.times.get(self.times.len() * percent / 100).copied().unwrap_or_default()
    }
}

enum Happening {
    Event(FleetEvent),
    Apply { operation: u64, transaction: Transaction },
}

struct Router {
    node: FleetNode,
    /// Its processor is taken until then.
    busy: Duration,
    /// The watch tells in order.
    reported: Duration,
    /// Changes of the store that its watch has told or is about to tell.
    position: usize,
    /// The next time at which its node wants to be woken.
    wake: Option<Duration>,
}

pub(crate) struct Rack {
    store: Store,
    routers: Vec<Router>,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    happenings: BTreeMap<u64, Happening>,
    sequence: u64,
    store_busy: Duration,
    random: u64,
    requested: BTreeMap<u64, Duration>,
    dead: BTreeSet<String>,
    figures: RackFigures,
}

fn text(prefix: &str, number: u64) -> String {
    format!("{prefix}{number}")
}

fn need(model: u64) -> Bytes {
    Bytes::gib(3 + model % 7)
}

/// Models of one list of offers: hosts of a kind have the same.
const KIND: u64 = 100;

impl Rack {
    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    /// A whole fleet: every model of every host has a seat there.
    fn fill(&mut self, settings: &RackSettings) {
        let RackSettings { hosts, models_a_host, .. } = *settings;
        for kind in 0..hosts.div_ceil(KIND) {
            let first = kind * KIND * models_a_host;
            let models = (first..first + KIND * models_a_host)
                .map(|model| (text("m", model), ModelOffer { file: None, need: need(model) }));
            let list = Record::new(OfferList { models: models.collect() });
            self.store.put(FleetKey::Offers(text("o", kind)), Some(list.write()));
        }
        for host in 0..hosts {
            let lease = self.store.grant(Duration::MAX);
            let record = HostRecord {
                incarnation: text("i", host),
                machine: text("machine", host),
                address: text("10.0.0.1:", host),
                version: "1".to_owned(),
                // A tenth more than its models take, and more on every third: somewhere is room.
                capacity: Bytes::gib(if host % 3 == 0 { 120 } else { 70 }),
                unseated: Bytes::ZERO,
                offers: text("o", host / KIND),
            };
            let write = Write::put(FleetKey::Host(text("h", host)), Record::new(record).write()).leased();
            let turn = Write::put(FleetKey::Turn(text("h", host)), Record::new(Turn {}).write());
            self.store.apply(&Transaction { compares: Vec::new(), writes: vec![write, turn] }, lease);
            for model in host * models_a_host..(host + 1) * models_a_host {
                let seat = Seat {
                    host: text("h", host),
                    incarnation: text("i", host),
                    need: need(model),
                    nonce: text("n", model),
                    cause: SeatCause::Wanted,
                    evicts: Vec::new(),
                };
                let key = FleetKey::Seat { model: text("m", model), number: 0 };
                self.store.put(key, Some(Record::new(seat).write()));
            }
        }
        self.store.history.clear();
    }

    pub(crate) fn run(settings: RackSettings) -> RackFigures {
        let mut rack = Self {
            store: Store::default(),
            routers: Vec::new(),
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            sequence: 0,
            store_busy: Duration::ZERO,
            random: settings.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            requested: BTreeMap::new(),
            dead: BTreeSet::new(),
            figures: RackFigures::default(),
        };
        rack.fill(&settings);
        rack.start_routers(settings.routers);
        rack.kill(&settings);
        while let Some(Reverse((at, sequence, router))) = rack.queue.pop() {
            rack.now = at;
            match rack.happenings.remove(&sequence) {
                Some(Happening::Event(event)) => rack.event(router, event),
                Some(Happening::Apply { operation, transaction }) => {
                    rack.apply(router, operation, &transaction)
                }
                None => {}
            }
            if rack.figures.back == rack.figures.requested
                || at > settings.requested_within + Duration::from_secs(90)
            {
                break;
            }
        }
        rack.figures.times.sort();
        rack.figures
    }

    /// Routers hold no memory of their own, so no model is placed on them.
    fn start_routers(&mut self, routers: usize) {
        let (revision, records) = (self.store.revision, self.store.all());
        for number in 0..routers {
            let name = format!("r{number}");
            let settings = NodeSettings {
                life: name.clone(),
                machine: name.clone(),
                address: name.clone(),
                name,
                version: "1".to_owned(),
                capacity: Bytes::ZERO,
                seed: self.draw(u64::MAX >> 11),
                wait: Duration::from_secs(60),
                watchers: usize::MAX,
            };
            let node = FleetNode::new(settings);
            let (busy, reported) = (Duration::ZERO, Duration::ZERO);
            self.routers.push(Router { node, busy, reported, position: 0, wake: None });
            self.event(number, FleetEvent::Read { revision, records: records.clone() });
        }
    }

    /// The leases of the dead end together, and their models are asked for from then on.
    fn kill(&mut self, settings: &RackSettings) {
        let step = settings.hosts / settings.dead;
        let dead: Vec<u64> = (0..settings.dead).map(|number| number * step).collect();
        for host in &dead {
            // Leases count from one, as they were granted.
            self.store.revoke(host + 1);
            self.dead.insert(text("h", *host));
        }
        self.notify();
        let within = u64::try_from(settings.requested_within.as_micros()).unwrap();
        let models = settings.models_a_host;
        for model in dead.into_iter().flat_map(|host| host * models..(host + 1) * models) {
            let at = Duration::from_millis(200) + Duration::from_micros(self.draw(within));
            let router = self.draw(settings.routers as u64) as usize;
            let event =
                FleetEvent::Wanted { request: model, model: text("m", model), affinity: Affinity::default() };
            self.requested.insert(model, at);
            self.at(at, router, Happening::Event(event));
        }
        self.figures.requested = self.requested.len();
    }

    fn at(&mut self, at: Duration, router: usize, happening: Happening) {
        self.sequence += 1;
        self.happenings.insert(self.sequence, happening);
        self.queue.push(Reverse((at, self.sequence, router)));
    }

    /// Each watch tells what is new, each with a lag of its own.
    fn notify(&mut self) {
        let length = self.store.history.len();
        for number in 0..self.routers.len() {
            let draw = self.draw(1_000_000) as f64 / 1e6;
            let lag = LAG + Duration::from_secs_f64(-MORE_LAG * (1.0 - draw).ln());
            let router = &mut self.routers[number];
            let changes: Vec<StoreChange> = self.store.history[router.position..].to_vec();
            router.position = length;
            router.reported = router.reported.max(self.now + lag);
            let reported = router.reported;
            self.at(reported, number, Happening::Event(FleetEvent::Changed(changes)));
        }
    }

    fn event(&mut self, number: usize, event: FleetEvent) {
        let mut effects = Vec::new();
        let now = self.now;
        self.routers[number].node.on_event(now, event, &mut effects);
        for effect in effects {
            match effect {
                FleetEffect::Transact { operation, transaction } => {
                    let answer = latency::of_claim(self.draw(100_000));
                    let router = &mut self.routers[number];
                    router.busy = router.busy.max(now) + PLACEMENT;
                    // In the queue of the store; both ways of the network are in the time of the answer.
                    let begun = self.store_busy.max(router.busy);
                    self.store_busy = begun + TRANSACTION;
                    self.at(begun + answer - WAY, number, Happening::Apply { operation, transaction });
                }
                // Its lease has ended a moment ago, and nothing listens there.
                FleetEffect::Forward { request, host, .. } if self.dead.contains(&host) => {
                    let model = text("m", request);
                    let failed = FleetEvent::HostFailed { request, model, host };
                    self.at(now + 2 * WAY, number, Happening::Event(failed));
                }
                FleetEffect::Forward { request, .. } => {
                    let Some(requested) = self.requested.remove(&request) else { continue };
                    self.figures.back += 1;
                    self.figures.times.push(now - requested);
                }
                FleetEffect::WakeAt(at)
                    if self.routers[number].wake.is_none_or(|wake| wake <= now || at < wake) =>
                {
                    self.routers[number].wake = Some(at);
                    self.at(at, number, Happening::Event(FleetEvent::Tick));
                }
                _ => {}
            }
        }
    }

    fn apply(&mut self, router: usize, operation: u64, transaction: &Transaction) {
        let outcome = self.store.apply(transaction, 0);
        match outcome {
            plimsoll_fleet::TransactionOutcome::Applied(_) => {
                self.figures.applied += 1;
                self.notify();
            }
            _ => self.figures.lost += 1,
        }
        let answer = FleetEvent::Transacted { operation, outcome };
        self.at(self.now + WAY, router, Happening::Event(answer));
    }
}
