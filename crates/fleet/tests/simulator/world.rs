//! Simulated fleet: daemons with engines, a network, faults and clients, driven by one queue of timed events.

mod engines;
mod leases;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    ClaimGuard, FleetEffect, FleetEvent, FleetNode, ModelOffer, NodeSettings, OfferList, SeatToken,
    Transaction, TransactionOutcome,
};

use super::checker::Faults;
use super::store::Store;

const TTL: Duration = Duration::from_secs(4);
/// A request gives up after this time.
const PATIENCE: Duration = Duration::from_secs(20);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

enum Happening {
    Event {
        daemon: usize,
        life: u32,
        event: FleetEvent,
    },
    Apply {
        daemon: usize,
        life: u32,
        lease: u64,
        operation: u64,
        transaction: Transaction,
        answer: bool,
    },
    Answer {
        daemon: usize,
        life: u32,
        lease: u64,
        operation: u64,
        transaction: Transaction,
        outcome: TransactionOutcome,
    },
    Granted {
        daemon: usize,
        life: u32,
        lease: u64,
    },
    Read {
        daemon: usize,
        life: u32,
        operation: u64,
        model: String,
    },
    Poll {
        daemon: usize,
        life: u32,
    },
    Renew {
        daemon: usize,
        life: u32,
    },
    Loaded {
        daemon: usize,
        life: u32,
        model: String,
    },
    Answered {
        daemon: usize,
        life: u32,
        model: String,
        request: u64,
    },
    Retire {
        daemon: usize,
        life: u32,
        model: String,
        used: u64,
    },
    Client,
    Fault,
    Restart {
        daemon: usize,
    },
    Ask {
        request: u64,
    },
}

struct Queued(Duration, u64, Happening);

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

#[derive(Default)]
struct Engine {
    need: Bytes,
    is_ready: bool,
    in_flight: Vec<u64>,
    is_released: bool,
    used: u64,
}

struct Daemon {
    node: FleetNode,
    life: u32,
    alive: bool,
    lease: u64,
    position: usize,
    cut_until: Duration,
    heard: Duration,
    engines: BTreeMap<String, Engine>,
    /// Tokens that models were loaded under.
    loaded: BTreeMap<String, u64>,
}

struct Request {
    model: String,
    origin: usize,
    requested: Duration,
    at: Option<(usize, SeatToken)>,
    ended: u32,
    answers: u32,
}

/// Size of a world, and what goes wrong in it.
#[derive(Clone, Copy)]
pub(crate) struct WorldSettings {
    pub(crate) hosts: usize,
    pub(crate) models: u64,
    /// The first of them may have two seats.
    pub(crate) replicas: u64,
    /// Clients, if not by the number of hosts.
    pub(crate) clients: usize,
    pub(crate) seconds: u64,
    pub(crate) faults: bool,
    /// The longest pause between two faults.
    pub(crate) pause: u64,
    /// Transactions in a hundred that are applied long after they were given up.
    pub(crate) late: u64,
    pub(crate) without: Option<ClaimGuard>,
    /// Hosts write what goes with a lease also while they have none.
    pub(crate) without_lease: bool,
    pub(crate) seed: u64,
}

pub(crate) struct World {
    settings: WorldSettings,
    now: Duration,
    sequence: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    pub(crate) store: Store,
    daemons: Vec<Daemon>,
    requests: BTreeMap<u64, Request>,
    next_request: u64,
    random: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    pub(crate) faults: Faults,
}

impl World {
    pub(crate) fn new(settings: WorldSettings) -> Self {
        let mut world = Self {
            settings,
            now: Duration::ZERO,
            sequence: 0,
            queue: BinaryHeap::new(),
            store: Store { without: settings.without, ..Store::default() },
            daemons: Vec::new(),
            requests: BTreeMap::new(),
            next_request: 0,
            random: settings.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            answered: 0,
            refused: 0,
            unknown: 0,
            faults: Faults::default(),
        };
        for daemon in 0..settings.hosts {
            let node = world.node(daemon, 0);
            world.daemons.push(Daemon {
                node,
                life: 0,
                alive: true,
                lease: 0,
                position: 0,
                cut_until: Duration::ZERO,
                heard: Duration::ZERO,
                engines: BTreeMap::new(),
                loaded: BTreeMap::new(),
            });
            world.boot(daemon);
        }
        let clients = if settings.clients > 0 { settings.clients } else { settings.hosts.clamp(8, 100) };
        for _ in 0..clients {
            let at = world.draw(3000);
            world.after(ms(1000 + at), Happening::Client);
        }
        if settings.faults {
            world.after(ms(2000), Happening::Fault);
        }
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    fn need(model: &str) -> Bytes {
        let number: u64 = model[1..].parse().unwrap();
        Bytes::gib(3 + number % 7)
    }

    fn node(&mut self, daemon: usize, life: u32) -> FleetNode {
        FleetNode::new(NodeSettings {
            name: format!("h{daemon}"),
            life: format!("h{daemon}-{life}"),
            machine: format!("m{daemon}"),
            address: format!("h{daemon}:1"),
            version: "1".to_owned(),
            capacity: Bytes::gib(12),
            seed: self.draw(u64::MAX >> 11),
            wait: PATIENCE,
            watchers: usize::MAX,
        })
    }

    fn boot(&mut self, daemon: usize) {
        let models = self.settings.models;
        let names = (0..models)
            .filter(|model| !(daemon as u64 + model).is_multiple_of(3))
            .map(|model| format!("m{model}"));
        let models =
            names.map(|name| (name.clone(), ModelOffer { file: None, need: Self::need(&name) })).collect();
        let digest = format!("o{}", daemon % 3);
        self.event(daemon, FleetEvent::Offers { digest, list: OfferList { models } });
        let replicas = (0..self.settings.replicas).map(|model| (format!("m{model}"), 2)).collect();
        self.event(daemon, FleetEvent::Replicas(replicas));
        let (life, first) = (self.daemons[daemon].life, self.draw(100));
        self.after(ms(first), Happening::Renew { daemon, life });
        self.after(ms(first + 5), Happening::Poll { daemon, life });
        self.daemons[daemon].position = usize::MAX;
    }

    fn after(&mut self, pause: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse(Queued(self.now + pause, self.sequence, happening)));
    }

    /// Runs to the end, and then on without faults until every request has ended.
    pub(crate) fn run(mut self) -> Self {
        let end = Duration::from_secs(self.settings.seconds);
        let last = end + PATIENCE + ms(15_000);
        while let Some(Reverse(Queued(at, _, happening))) = self.queue.pop() {
            self.now = at;
            if at > last {
                break;
            }
            if at > end && matches!(happening, Happening::Client | Happening::Fault) {
                continue;
            }
            self.store.expire(at);
            self.happen(happening);
            let over = at > end && self.requests.values().all(|request| request.ended > 0);
            if over && at > end + TTL {
                break;
            }
        }
        let open = self.requests.values().filter(|request| request.ended != 1).count();
        (0..open).for_each(|_| self.faults.count("a request that did not end once"));
        self
    }

    fn lives(&self, daemon: usize, life: u32) -> bool {
        self.daemons[daemon].alive && self.daemons[daemon].life == life
    }

    fn is_cut(&self, daemon: usize) -> bool {
        self.daemons[daemon].cut_until > self.now
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Event { daemon, life, event } if self.lives(daemon, life) => self.event(daemon, event),
            Happening::Apply { daemon, life, lease, operation, transaction, answer } => {
                let outcome = self.store.apply(&transaction, lease);
                let (pause, outcome) = if self.is_cut(daemon) {
                    (ms(500), TransactionOutcome::Unknown)
                } else {
                    (ms(1 + self.draw(10)), outcome)
                };
                if answer {
                    let answer = Happening::Answer { daemon, life, lease, operation, transaction, outcome };
                    self.after(pause, answer);
                }
                self.check_leases();
            }
            Happening::Answer { daemon, life, lease, operation, transaction, outcome }
                if self.lives(daemon, life) =>
            {
                let outcome = transaction.outcome_of(outcome, lease, self.daemons[daemon].lease);
                self.event(daemon, FleetEvent::Transacted { operation, outcome });
            }
            Happening::Granted { daemon, life, lease } if self.lives(daemon, life) => {
                self.daemons[daemon].lease = lease;
                self.event(daemon, FleetEvent::Leased);
            }
            Happening::Read { daemon, life, operation, model } => {
                let seats = (!self.is_cut(daemon)).then(|| self.store.seats(&model));
                let event = FleetEvent::SeatRead { operation, seats };
                let pause = ms(if self.is_cut(daemon) { 500 } else { 1 + self.draw(10) });
                self.after(pause, Happening::Event { daemon, life, event });
            }
            Happening::Poll { daemon, life } if self.lives(daemon, life) => self.poll(daemon, life),
            Happening::Renew { daemon, life } if self.lives(daemon, life) => self.renew(daemon, life),
            Happening::Loaded { daemon, life, model } if self.lives(daemon, life) => {
                self.loaded(daemon, &model)
            }
            Happening::Answered { daemon, life, model, request } if self.lives(daemon, life) => {
                self.finish(daemon, &model, request);
            }
            Happening::Retire { daemon, life, model, used } if self.lives(daemon, life) => {
                let silent = self.is_cut(daemon);
                let engine = self.daemons[daemon].engines.get(&model);
                if engine.is_some_and(|it| it.is_ready && it.in_flight.is_empty() && it.used == used)
                    && !silent
                {
                    self.unload(daemon, &model);
                }
            }
            Happening::Client => self.client(),
            Happening::Fault => self.fault(),
            Happening::Restart { daemon } => self.restart(daemon),
            Happening::Ask { request } => self.ask(request),
            _ => {}
        }
    }

    fn event(&mut self, daemon: usize, event: FleetEvent) {
        let mut effects = Vec::new();
        self.daemons[daemon].node.on_event(self.now, event, &mut effects);
        for effect in effects {
            self.effect(daemon, effect);
        }
    }

    fn effect(&mut self, daemon: usize, effect: FleetEffect) {
        let life = self.daemons[daemon].life;
        match effect {
            FleetEffect::Transact { operation, transaction } => self.transact(daemon, operation, transaction),
            FleetEffect::ReadSeat { operation, model } => {
                let pause = ms(1 + self.draw(10));
                self.after(pause, Happening::Read { daemon, life, operation, model });
            }
            FleetEffect::Serve { request } => self.serve(daemon, request),
            FleetEffect::Forward { request, host, token, .. } => {
                let to: usize = host[1..].parse().unwrap();
                let Some(requested) = self.requests.get_mut(&request) else { return };
                // A host that is gone is not asked, so its next life does not break the request.
                requested.at = self.daemons[to].alive.then(|| (to, token.clone()));
                let model = requested.model.clone();
                let pause = ms(1 + self.draw(5));
                if self.daemons[to].alive {
                    let (life, event) = (self.daemons[to].life, FleetEvent::Hop { request, model, token });
                    self.after(pause, Happening::Event { daemon: to, life, event });
                } else {
                    let event = FleetEvent::HostFailed { request, model, host };
                    self.after(pause, Happening::Event { daemon, life, event });
                }
            }
            FleetEffect::Refuse { request, .. } => self.refuse(request),
            FleetEffect::Release { model } => {
                if let Some(engine) = self.daemons[daemon].engines.get_mut(&model) {
                    engine.is_released = true;
                    if engine.in_flight.is_empty() && engine.is_ready {
                        self.unload(daemon, &model);
                    }
                }
            }
            // Models of the world leave only while the store answers.
            FleetEffect::HoldIdle { .. } => {}
            // No host of the world lacks a file.
            FleetEffect::Copy { .. } => {}
            FleetEffect::NameTaken { .. } => self.faults.count("a name of two hosts"),
            FleetEffect::StoreRestored => self.faults.count("a store that was not restored counts as one"),
            FleetEffect::NewsDoubted { .. } | FleetEffect::LeaveSource => {
                self.faults.count("news of the store that are doubted");
            }
            FleetEffect::WakeAt(at) => {
                let pause = at.saturating_sub(self.now);
                self.after(pause, Happening::Event { daemon, life, event: FleetEvent::Tick });
            }
        }
    }

    /// Passes a transaction to the store. Some are lost, some lose their answer, some are applied much later.
    fn transact(&mut self, daemon: usize, operation: u64, transaction: Transaction) {
        let (life, lease) = (self.daemons[daemon].life, self.daemons[daemon].lease);
        let (way, pause) = (self.draw(100), ms(1 + self.draw(20)));
        if !self.settings.without_lease && !transaction.may_go_with(lease) {
            let event = FleetEvent::Transacted { operation, outcome: TransactionOutcome::Unknown };
            return self.after(ms(1), Happening::Event { daemon, life, event });
        }
        let (is_lost, is_late) = if self.settings.faults {
            (self.is_cut(daemon) || way < 4, (4..4 + self.settings.late).contains(&way))
        } else {
            (false, false)
        };
        let is_silent = is_lost || is_late || (self.settings.faults && way < self.settings.late + 9);
        if is_silent {
            self.unknown += 1;
            let event = FleetEvent::Transacted { operation, outcome: TransactionOutcome::Unknown };
            self.after(ms(500), Happening::Event { daemon, life, event });
        }
        if !is_lost {
            let late = [500, 4000][self.draw(2) as usize];
            let pause = if is_late { ms(50 + self.draw(late)) } else { pause };
            let answer = !is_silent;
            self.after(pause, Happening::Apply { daemon, life, lease, operation, transaction, answer });
        }
    }

    fn poll(&mut self, daemon: usize, life: u32) {
        let pause = ms(10 + self.draw(60));
        self.after(pause, Happening::Poll { daemon, life });
        let (now, length) = (self.now, self.store.history.len());
        let host = &mut self.daemons[daemon];
        if host.cut_until > now {
            if now > host.heard + ms(2000) {
                host.position = usize::MAX;
                let cause = "no answer".to_owned();
                self.event(daemon, FleetEvent::StoreSilent { cause });
            }
            return;
        }
        host.heard = now;
        let position = std::mem::replace(&mut host.position, length);
        match position {
            usize::MAX => {
                let (revision, records) = (self.store.revision, self.store.all());
                self.event(daemon, FleetEvent::Read { revision, records });
            }
            at if at < length => {
                let changes = self.store.history[at..].to_vec();
                self.event(daemon, FleetEvent::Changed(changes));
            }
            _ => {}
        }
    }
}
