//! Test of a fleet under random faults, reproducible by a seed, while clients send requests.
//!
//! Afterwards it checks the complete history of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use plimsoll_fleet::FleetKey;

use super::checker::Faults;
use super::faults::Fault;
use super::links::Links;
use super::rig::{KEY, history, view};
use super::server::Cluster;
use super::slow_disk::SlowDisk;
use super::witness::{Gate, client, crowds, watch_cards};
use crate::daemon::{Daemon, Setup};

pub(crate) const HOSTS: usize = 3;
/// More than there is room for, so that idle ones leave for others.
pub(crate) const MODELS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// The first of them may have two hosts at a time, and answer slowly, so that crowds come about.
pub(crate) const CROWDED: [&str; 2] = ["a", "b"];
const SLOW: &str = "events=20 event_ms=50";
/// Room for two models.
const CARD: &str = "name=host,kind=host,total=256MiB";
const MEMORY: &str = "100MiB";
pub(crate) const ROOM: usize = 2;
/// Time after the last fault in which everything is answered again: a lease, a seat without a request, a
/// load.
const WHOLE: Duration = Duration::from_secs(40);
/// Time after a fault in which the host of a seat is found again: a lease, and connections that look anew.
const FOUND: Duration = Duration::from_secs(20);

/// A pseudo-random number: xorshift64, by Marsaglia.
pub(crate) fn draw(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) % below
}

pub(crate) struct World {
    pub(crate) names: Vec<String>,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) links: Links,
    pub(crate) store: Cluster,
    pub(crate) gates: Vec<Arc<Gate>>,
    pub(crate) slow_disk: Option<SlowDisk>,
    pub(crate) has_backup: bool,
    folder: tempfile::TempDir,
    random: u64,
    began: Instant,
    pub(crate) reported: Vec<String>,
    /// Kinds that are still to come in this round.
    left: Vec<Fault>,
    /// Faults by kind.
    kinds: BTreeMap<Fault, u64>,
    /// Changes of the store that were checked, over all its histories.
    checked: usize,
    /// Seats that a model got beside another one.
    further: usize,
    /// Seats whose host was looked for after a fault, and the longest time until it was found.
    found: (u64, Duration),
}

impl World {
    fn start(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), KEY).unwrap();
        let (links, store) = Links::start(HOSTS);
        let slow_disk = SlowDisk::of(&store.data());
        let mut world = Self {
            names: (0..HOSTS).map(|number| format!("h{number}")).collect(),
            daemons: Vec::new(),
            links,
            store,
            gates: Vec::new(),
            slow_disk,
            has_backup: false,
            folder,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            began: Instant::now(),
            reported: Vec::new(),
            left: Vec::new(),
            kinds: BTreeMap::new(),
            checked: 0,
            further: 0,
            found: (0, Duration::ZERO),
        };
        for number in 0..HOSTS {
            let daemon = world.daemon(number);
            world.gates.push(Arc::new(Gate::new(&daemon)));
            world.daemons.push(daemon);
        }
        world
    }

    pub(crate) fn daemon(&self, number: usize) -> Daemon {
        let members = self.links.members(number, &self.store);
        let (name, address) = (&self.names[number], self.links.peer(number));
        let key = self.folder.path().join("key");
        let table = format!(
            "[fleet]\nstore = \"etcd://{members}/test\"\nhost = \"{name}\"\naddress = \"{address}\"\nkey-file = \"{}\"\n",
            key.display()
        );
        let setup = Setup::with_cards(&[CARD]).config(&table);
        let setup = MODELS.iter().fold(setup, |setup, model| {
            if CROWDED.contains(model) {
                setup.model(model, MEMORY, SLOW, "replicas = 2")
            } else {
                setup.model(model, MEMORY, "", "")
            }
        });
        self.links.start_daemon(number, setup)
    }

    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        draw(&mut self.random, below)
    }

    pub(crate) fn pause(&mut self, most: u64) {
        let pause = 200 + self.draw(most);
        sleep(Duration::from_millis(pause));
    }

    /// One fault of any kind, and its end.
    fn strike(&mut self) {
        // Every kind once, in an order by the seed, and then all again.
        if self.left.is_empty() {
            self.left = Fault::ALL.to_vec();
        }
        let drawn = usize::try_from(self.draw(self.left.len() as u64)).unwrap();
        let fault = self.left.swap_remove(drawn);
        let at = usize::try_from(self.draw(HOSTS as u64)).unwrap();
        // Longer than a lease, now and then.
        let most = if self.draw(4) == 0 { 12_000 } else { 3000 };
        self.reported.push(format!(
            "{:.1} s: {fault:?} at {at}, at most {most} ms",
            self.began.elapsed().as_secs_f64()
        ));
        *self.kinds.entry(fault).or_default() += 1;
        fault.strike(self, at, most);
    }

    /// Checks the whole history of the store.
    pub(crate) fn check_history(&mut self) {
        let changes = history(&self.store);
        assert_eq!(super::checker::check(&changes), Faults::default(), "{}", self.words());
        self.checked += changes.len();
        let is_further = |key: &FleetKey| matches!(key, FleetKey::Seat { number: 1.., .. });
        let further = changes.iter().filter(|change| change.value.is_some() && is_further(&change.key));
        self.further += further.count();
    }

    /// No host with a valid seat is passed over longer than its failure: each is found again soon after a
    /// fault.
    fn find_seats(&mut self) {
        let (began, gate) = (Instant::now(), usize::try_from(self.draw(HOSTS as u64)).unwrap());
        for model in MODELS {
            // Without an answer of the store there is no seat to compare with.
            let seats = || {
                let view = view(&self.store)?;
                let seats = view.living_seats(model);
                let seats = seats.map(|(_, seat)| (seat.record.body.host.clone(), seat.revision));
                Some(seats.collect::<BTreeMap<String, u64>>()).filter(|seats| !seats.is_empty())
            };
            while let Some(before) = seats() {
                let answered =
                    self.gates[gate].host_of(model).map(|host| host.unwrap_or(self.names[gate].clone()));
                if answered.as_ref().is_some_and(|host| before.contains_key(host)) {
                    break;
                }
                // A seat that was given to another host meanwhile is no such seat.
                let stands = seats().as_ref() == Some(&before);
                let late = stands && began.elapsed() > FOUND;
                assert!(!late, "'{model}' of {before:?} is answered by {answered:?}: {}", self.words());
                if !stands {
                    break;
                }
                sleep(Duration::from_millis(100));
            }
            self.found.0 += 1;
        }
        self.found.1 = self.found.1.max(began.elapsed());
    }

    /// Every host answers for every model.
    fn is_whole(&self) -> Duration {
        let began = Instant::now();
        for gate in &self.gates {
            for model in MODELS {
                while !gate.answers(model) {
                    assert!(began.elapsed() < WHOLE, "no answer of '{model}': {}", self.words());
                }
            }
        }
        began.elapsed()
    }

    pub(crate) fn words(&self) -> String {
        let hosts = self.names.iter().zip(&self.daemons);
        let hosts = hosts.map(|(name, daemon)| format!("── {name} ──\n{}", daemon.talk()));
        format!("{}\n{}", self.reported.join("\n"), hosts.collect::<String>())
    }
}

/// Runs clients and faults for a time, then checks what the store and the cards were told.
#[allow(clippy::print_stdout, reason = "figures of the run")]
fn run(seed: u64, time: Duration) -> World {
    let mut world = World::start(seed);
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<JoinHandle<_>> = (0..4)
        .map(|number| {
            let (gates, over) = (world.gates.clone(), Arc::clone(&over));
            spawn(move || client(seed + number, &gates, &over))
        })
        .collect();
    let crowds = {
        let (gates, over) = (world.gates.clone(), Arc::clone(&over));
        spawn(move || crowds(seed, &gates, &over))
    };
    let cards = {
        let (gates, over) = (world.gates.clone(), Arc::clone(&over));
        spawn(move || watch_cards(&gates, &over))
    };
    world.is_whole();
    let end = Instant::now() + time;
    while Instant::now() < end {
        world.strike();
        world.find_seats();
        world.pause(1000);
    }
    let whole = world.is_whole();
    over.store(true, Ordering::Relaxed);
    let (mut answered, mut refused) = (Vec::new(), 0);
    for client in clients.into_iter().chain([crowds]) {
        let seen = client.join().expect("a client's check fails");
        answered.extend(seen.answered);
        refused += seen.refused;
        assert!(seen.faults.is_empty(), "{:?}\n{}", seen.faults, world.words());
    }
    let count = answered.len();
    let mut once = BTreeSet::new();
    let again: Vec<String> = answered.into_iter().filter(|answer| !once.insert(answer.clone())).collect();
    assert!(again.is_empty(), "requests with one answer: {again:?}");
    let looks = cards.join().expect("a card holds more engines than it has room for");
    world.check_history();
    let network = if world.links.are_real() { "namespaces" } else { "relays" };
    let disk = if world.slow_disk.is_some() { "30 writes a second" } else { "pulses of SIGSTOP" };
    println!(
        "seed {seed}, {network}, slow disk by {disk}: {} faults {:?}; {count} answers, {refused} refusals; {looks} looks at \
        the cards, {} changes of the store checked, {} seats beside another one; {} seats found after a fault, in {:?} at most; whole {whole:?} after \
        the last: no fault found",
        world.reported.len(),
        world.kinds,
        world.checked,
        world.further,
        world.found.0,
        world.found.1,
    );
    assert!(count > 20 && !world.reported.is_empty(), "{count} answers");
    world
}

#[test]
fn faults_of_a_seed_over_commit_nothing_and_leave_a_whole_fleet() {
    drop(run(1, Duration::from_secs(60)));
}

#[test]
fn long_nemesis_of_a_fleet() {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default);
    let (seed, seconds) = (number("PLIMSOLL_NEMESIS_SEED", 2), number("PLIMSOLL_NEMESIS_SECONDS", 300));
    let world = run(seed, Duration::from_secs(seconds));
    // In a short time no host may have room for it.
    assert!(seconds < 300 || world.further > 0, "no crowd has brought a model a second host");
}
