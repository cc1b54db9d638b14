//! Nemesis of a fleet: faults drawn from a seed while clients go on, and a check of the store's whole history.
//!
//! Daemons reach the members and each other by relays, so that each link can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use crate::checker::Faults;
use crate::daemon::{Daemon, Setup};
use crate::relay::Relay;
use crate::rig::{KEY, history};
use crate::server::Cluster;
use crate::witness::{Gate, client, watch_cards};

pub(crate) const HOSTS: usize = 3;
/// More than there is room for, so that idle ones leave for others.
pub(crate) const MODELS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Room for two models.
const CARD: &str = "name=host,kind=host,total=256MiB";
const MEMORY: &str = "100MiB";
pub(crate) const ROOM: usize = 2;
/// Time after the last fault in which everything is answered again: a lease, a seat without a request, a load.
const WHOLE: Duration = Duration::from_secs(40);

/// A pseudo-random number: xorshift64, by Marsaglia.
pub(crate) fn draw(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) % below
}

struct Host {
    name: String,
    daemon: Daemon,
    /// By which other hosts reach it.
    peer: Relay,
    /// By which it reaches the members.
    members: Vec<Relay>,
}

struct World {
    hosts: Vec<Host>,
    store: Cluster,
    gates: Vec<Arc<Gate>>,
    folder: tempfile::TempDir,
    random: u64,
    told: Vec<String>,
}

impl World {
    fn start(seed: u64) -> Self {
        let (store, folder) = (Cluster::start(HOSTS), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("key"), KEY).unwrap();
        let mut world = Self {
            hosts: Vec::new(),
            store,
            gates: Vec::new(),
            folder,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            told: Vec::new(),
        };
        for number in 0..HOSTS {
            let name = format!("h{number}");
            let (peer, members): (_, Vec<Relay>) =
                (Relay::start(), (0..HOSTS).map(|_| Relay::start()).collect());
            for (relay, member) in members.iter().zip(&world.store.members) {
                relay.lead_to(member.address.parse().unwrap());
            }
            let daemon = world.daemon(&name, &peer, &members);
            world.gates.push(Arc::new(Gate::new(&daemon)));
            world.hosts.push(Host { name, daemon, peer, members });
        }
        world
    }

    fn daemon(&self, name: &str, peer: &Relay, members: &[Relay]) -> Daemon {
        let members: Vec<String> = members.iter().map(|relay| relay.address.to_string()).collect();
        let key = self.folder.path().join("key");
        let table = format!(
            "[fleet]\nstore = \"etcd://{}/test\"\nhost = \"{name}\"\naddress = \"{}\"\nkey-file = \"{}\"\n",
            members.join(","),
            peer.address,
            key.display()
        );
        let setup = Setup::with_cards(&[CARD]).config(&table);
        let setup = MODELS.iter().fold(setup, |setup, model| setup.model(model, MEMORY, "", ""));
        let daemon = setup.start();
        peer.lead_to(daemon.address);
        daemon
    }

    fn draw(&mut self, below: u64) -> u64 {
        draw(&mut self.random, below)
    }

    fn pause(&mut self, most: u64) {
        let pause = 200 + self.draw(most);
        sleep(Duration::from_millis(pause));
    }

    /// One fault, and its end.
    fn fault(&mut self) {
        let at = usize::try_from(self.draw(HOSTS as u64)).unwrap();
        // Longer than a lease, now and then.
        let most = if self.draw(4) == 0 { 12_000 } else { 3000 };
        let kind = self.draw(9);
        self.told.push(format!("fault {kind} at {at}, at most {most} ms"));
        match kind {
            0 => self.kill_daemon(at, most),
            1 => self.between(
                most,
                |world| world.hosts[at].daemon.signal("STOP"),
                |world| {
                    world.hosts[at].daemon.signal("CONT");
                },
            ),
            2 => self.between(
                most,
                |world| world.store.members[at].kill(),
                |world| {
                    world.store.members[at].restart();
                },
            ),
            3 => self.between(
                most,
                |world| world.store.members[at].signal("STOP"),
                |world| {
                    world.store.members[at].signal("CONT");
                },
            ),
            4 => self.between(
                most,
                |world| world.cut_from_store(at, true),
                |world| {
                    world.cut_from_store(at, false);
                },
            ),
            5 => self.between(
                most,
                |world| world.hosts[at].peer.cut(true),
                |world| {
                    world.hosts[at].peer.cut(false);
                },
            ),
            6 => self.kill_engine(at),
            // The quorum is lost.
            7 => self.between(
                most,
                |world| world.store.members.iter().skip(1).for_each(|member| member.signal("STOP")),
                |world| world.store.members.iter().skip(1).for_each(|member| member.signal("CONT")),
            ),
            _ => self.operate(at),
        }
    }

    fn between(&mut self, most: u64, begin: impl FnOnce(&mut Self), end: impl FnOnce(&mut Self)) {
        begin(self);
        self.pause(most);
        end(self);
    }

    fn kill_daemon(&mut self, at: usize, most: u64) {
        self.gates[at].close();
        self.hosts[at].daemon.signal("KILL");
        self.hosts[at].daemon.wait();
        self.pause(most);
        let host = &self.hosts[at];
        let daemon = self.daemon(&host.name, &host.peer, &host.members);
        self.hosts[at].daemon = daemon;
        self.gates[at].open(&self.hosts[at].daemon);
    }

    fn kill_engine(&mut self, at: usize) {
        if let Some(engine) = self.hosts[at].daemon.engines().first() {
            let _ = std::process::Command::new("kill").args(["-KILL", &engine.to_string()]).status();
        }
    }

    fn cut_from_store(&self, at: usize, is_cut: bool) {
        self.hosts[at].members.iter().for_each(|relay| relay.cut(is_cut));
    }

    /// An operator drains a host and ends the drain, or moves a model.
    fn operate(&mut self, at: usize) {
        let model = MODELS[usize::try_from(self.draw(MODELS.len() as u64)).unwrap()];
        let host = self.hosts[at].name.clone();
        // Refusals are answers too: the host may be full, or gone.
        let act = |words: &[&str]| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
            let store = self.store.address();
            command.arg("fleet").args(words).args(["--store", &store]).output().unwrap();
        };
        act(&["move", model, &host]);
        act(&["drain", &host]);
        sleep(Duration::from_millis(500));
        act(&["uncordon", &host]);
    }

    /// Every host answers for every model.
    fn is_whole(&self) {
        let end = Instant::now() + WHOLE;
        for gate in &self.gates {
            for model in MODELS {
                while !gate.answers(model) {
                    assert!(Instant::now() < end, "no answer of '{model}': {}", self.words());
                }
            }
        }
    }

    fn words(&self) -> String {
        let hosts = self.hosts.iter().map(|host| format!("── {} ──\n{}", host.name, host.daemon.talk()));
        format!("{}\n{}", self.told.join("\n"), hosts.collect::<String>())
    }
}

/// Runs clients and faults for a time, then checks what the store and the cards were told.
#[allow(clippy::print_stdout, reason = "figures of the run")]
fn run(seed: u64, time: Duration) {
    let mut world = World::start(seed);
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<JoinHandle<_>> = (0..4)
        .map(|number| {
            let (gates, over) = (world.gates.clone(), Arc::clone(&over));
            spawn(move || client(seed + number, &gates, &over))
        })
        .collect();
    let cards = {
        let (gates, over) = (world.gates.clone(), Arc::clone(&over));
        spawn(move || watch_cards(&gates, &over))
    };
    sleep(Duration::from_secs(2));
    let end = Instant::now() + time;
    while Instant::now() < end {
        world.fault();
        world.pause(1000);
    }
    world.is_whole();
    over.store(true, Ordering::Relaxed);
    let (mut answered, mut refused) = (Vec::new(), 0);
    for client in clients {
        let seen = client.join().expect("a client's check fails");
        answered.extend(seen.answered);
        refused += seen.refused;
        assert!(seen.faults.is_empty(), "{:?}\n{}", seen.faults, world.words());
    }
    let count = answered.len();
    let once: std::collections::BTreeSet<String> = answered.into_iter().collect();
    assert_eq!(once.len(), count, "two requests with one answer");
    let looks = cards.join().expect("a card holds more engines than it has room for");
    let changes = history(&world.store);
    assert_eq!(crate::checker::check(&changes), Faults::default(), "{}", world.words());
    let faults = world.told.len();
    println!(
        "seed {seed}: {faults} faults, {count} answers, {refused} refusals, {looks} looks at the cards, \
        {} changes of the store: no fault found",
        changes.len()
    );
    assert!(count > 20 && faults > 0, "{count} answers");
}

#[test]
fn faults_of_a_seed_over_commit_nothing_and_leave_a_whole_fleet() {
    run(1, Duration::from_secs(15));
}

#[test]
fn long_nemesis_of_a_fleet() {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default);
    let (seed, seconds) = (number("PLIMSOLL_NEMESIS_SEED", 2), number("PLIMSOLL_NEMESIS_SECONDS", 300));
    run(seed, Duration::from_secs(seconds));
}
