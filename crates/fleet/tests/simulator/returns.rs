//! Simulation of a large fleet in which all hosts have lost the store (etcd) and reconnect at once.
//!
//! It shows where each host gets its fleet news (store records and changes) afterwards.
//!
//! Pauses and sources are computed by the real code. A full read costs the store's members what a real etcd
//! took (`crates/etcd/tests/real/loads.rs`). A host that serves its news to others sends them to one after
//! the other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    FleetEvent, FleetKey, FleetNode, FleetView, HostRecord, NewsSource, NodeSettings, Record, StoreChange,
    source,
};

/// Time of a processor for a whole reading, for each host of the fleet, and for the claim of a lease or a
/// registration.
const A_HOST_READ: Duration = Duration::from_micros(194);
const A_WRITE: Duration = Duration::from_micros(1_855);
/// Processors of all members together.
const PROCESSORS: usize = 6;
/// What a host takes to send one other all records, for each host of the fleet: 5 KB.
const A_HOST_SENT: Duration = Duration::from_micros(30);
/// A pause between two attempts, as the daemon has it.
const AGAIN: Duration = Duration::from_millis(500);
/// A page that waits longer is given up, and the reading begins anew.
const PATIENCE: Duration = Duration::from_secs(2);

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct ReturnFigures {
    /// Whole readings of the store.
    pub(crate) readings: usize,
    /// The longest time that anything waited in the store's queue.
    pub(crate) backlog: Duration,
    /// When the last host knew the fleet again.
    pub(crate) whole: Duration,
    /// Hosts between a host and the store, at most.
    pub(crate) deepest: usize,
}

pub(crate) fn view(hosts: usize) -> Vec<StoreChange> {
    let record = |number: usize| {
        let text = |prefix: &str| format!("{prefix}{number}");
        let host = HostRecord {
            incarnation: text("i"),
            machine: text("m"),
            address: text("10.0.0.1:"),
            version: "1".to_owned(),
            capacity: Bytes::gib(80),
            unseated: Bytes::ZERO,
            offers: "o".to_owned(),
        };
        StoreChange { key: FleetKey::Host(text("h")), revision: 1, value: Some(Record::new(host).write()) }
    };
    (0..hosts).map(record).collect()
}

/// One node that draws the pauses of all: each knows the same fleet.
fn node(hosts: usize, watchers: usize) -> FleetNode {
    let text = str::to_owned;
    let mut node = FleetNode::new(NodeSettings {
        name: text("h0"),
        life: text("i0"),
        machine: text("m0"),
        address: text("10.0.0.1:0"),
        version: text("1"),
        capacity: Bytes::gib(80),
        seed: 11,
        wait: Duration::from_secs(60),
        watchers,
    });
    node.on_event(Duration::ZERO, FleetEvent::Read { revision: 1, records: view(hosts) }, &mut Vec::new());
    node
}

struct Returning {
    now: Duration,
    node: FleetNode,
    view: FleetView,
    watchers: usize,
    /// When each processor of the members, and each host, is free again.
    members: Vec<Duration>,
    senders: HashMap<String, Duration>,
    /// Hosts that know the fleet again, since when, and over how many others.
    knows: HashMap<String, (Duration, usize)>,
    figures: ReturnFigures,
}

impl Returning {
    /// The end of work that the store's members do in turn.
    fn requested(&mut self, cost: Duration) -> Duration {
        let free = self.members.iter_mut().min().unwrap();
        let begun = self.now.max(*free);
        *free = begun + cost;
        self.figures.backlog = self.figures.backlog.max(begun - self.now);
        *free
    }

    /// One attempt of a host; gives when it knows the fleet, or when it tries again.
    fn attempt(&mut self, name: &str, failed: u32) -> Result<Duration, Duration> {
        // Each host draws its own.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let drawn = name.bytes().fold(u64::from(failed) + self.now.as_micros() as u64, step);
        let random = (drawn ^ (drawn >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8;
        let hosts = u32::try_from(self.view.hosts.len()).unwrap();
        match source(&self.view, name, self.watchers, failed, random) {
            NewsSource::Store => {
                self.figures.readings += 1;
                let cost = A_HOST_READ * hosts;
                let end = self.requested(cost);
                if end - self.now > cost + PATIENCE {
                    return Err(self.now + PATIENCE);
                }
                self.knows.insert(name.to_owned(), (end, 0));
                Ok(end)
            }
            NewsSource::Host { name: requested, .. } => {
                let Some((since, depth)) =
                    self.knows.get(&requested).copied().filter(|(since, _)| *since <= self.now)
                else {
                    return Err(self.now);
                };
                let free = self.senders.entry(requested).or_insert(since);
                *free = self.now.max(*free) + A_HOST_SENT * hosts;
                let end = *free;
                self.knows.insert(name.to_owned(), (end, depth + 1));
                self.figures.deepest = self.figures.deepest.max(depth + 1);
                Ok(end)
            }
        }
    }
}

pub(crate) fn run(hosts: usize, watchers: usize) -> ReturnFigures {
    let mut world = Returning {
        now: Duration::ZERO,
        node: node(hosts, watchers),
        view: FleetView::at(1, view(hosts)),
        watchers,
        members: vec![Duration::ZERO; PROCESSORS],
        senders: HashMap::new(),
        knows: HashMap::new(),
        figures: ReturnFigures::default(),
    };
    let mut queue = BinaryHeap::new();
    // The store is back at the time 0; each host is in one of its pauses then.
    for number in 0..hosts {
        let pause = world.node.share_of_reading(AGAIN);
        queue.push(Reverse((pause, number, 0_u32)));
        // The lease and the registration are written in a share of time of their own.
        let lease = world.node.share(AGAIN);
        queue.push(Reverse((lease, number, u32::MAX)));
    }
    while let Some(Reverse((at, number, failed))) = queue.pop() {
        world.now = at;
        if failed == u32::MAX {
            world.requested(A_WRITE * 2);
            continue;
        }
        match world.attempt(&format!("h{number}"), failed) {
            Ok(whole) => world.figures.whole = world.figures.whole.max(whole),
            // After the store itself the round begins anew.
            Err(ended) => {
                let name = format!("h{number}");
                let of = |failed| source(&world.view, &name, world.watchers, failed, 1);
                let next = if of(failed) == NewsSource::Store { 0 } else { failed + 1 };
                let asks_the_store = of(next) == NewsSource::Store;
                let pause =
                    if asks_the_store { world.node.share_of_reading(AGAIN) } else { world.node.share(AGAIN) };
                queue.push(Reverse((ended + pause, number, next)));
            }
        }
    }
    assert_eq!(world.knows.len(), hosts);
    world.figures
}
