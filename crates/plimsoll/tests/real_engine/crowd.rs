//! Tests that sixteen hostile clients do not keep forty-eight others from being served, by fake engines and
//! by a real llama.cpp.
//!
//! Quiet and hostile rounds alternate, so that the machine's load affects the latencies of both. The daemon's
//! stderr is never read.

mod bystanders;
mod dice;
mod offenders;
mod tally;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_specimens::Changes;
use serde_json::json;
use tempfile::TempDir;

use self::bystanders::BYSTANDERS;
use self::offenders::WAYS;
use self::tally::Tally;
use super::fleet;
use crate::child::program;
use crate::daemon::{Daemon, Setup, descendants, until};
use crate::http;

const MIB: u64 = 1 << 20;
/// The end of the pipe on stderr stays open as long as the daemon lives, and nothing is read from it.
const STDERR_UNREAD: &str = "exec 2> >(exec tail --pid=$$ -f /dev/null)";
const REAL_FLAGS: &str = "--threads 1 -c 4096 -np 4";
/// Resident memory may end so far above its start.
const RESIDENT_GROWTH: u64 = 32 * MIB;
/// A client that takes nothing gives way within 15 s, and the swap that waited for it takes its time.
const LONGEST_SWAP: Duration = Duration::from_secs(25);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Quiet,
    Hostile,
    Over,
}

/// Rounds of a quiet and a hostile part.
#[derive(Debug, Clone, Copy)]
struct Course {
    quiet: Duration,
    hostile: Duration,
    rounds: u32,
}

/// Shared by all clients of one run.
#[derive(Debug)]
pub(crate) struct Stage {
    address: SocketAddr,
    phase: AtomicU8,
    tally: Tally,
}

impl Stage {
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Quiet,
            1 => Phase::Hostile,
            _ => Phase::Over,
        }
    }

    fn set(&self, phase: Phase) {
        let number = match phase {
            Phase::Quiet => 0,
            Phase::Hostile => 1,
            Phase::Over => 2,
        };
        self.phase.store(number, Ordering::Release);
    }

    /// Plays the course, and ends all clients with it.
    fn play(&self, course: Course) {
        for _ in 0..course.rounds {
            self.set(Phase::Quiet);
            thread::sleep(course.quiet);
            self.set(Phase::Hostile);
            thread::sleep(course.hostile);
        }
        self.set(Phase::Over);
    }
}

/// Two fake models that stay, one with large answers, two that take turns, and a real one.
fn serve() -> (Daemon, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("real.gguf");
    plimsoll_specimens::write("tiny", &file, &Changes::default()).unwrap();
    let total = fleet::need(&file, REAL_FLAGS) + (3 * 64 + 300 + 100) * MIB;
    let real =
        format!("[models.real]\nmodel = \"{}\"\nflags = \"{REAL_FLAGS}\"\npin = true\n", file.display());
    let swapped = "load_ms=50 delay_ms=10 answer_bytes=2000000";
    let daemon = Setup::with_cards(&[&format!("name=crowd,kind=host,total={total}B")])
        .config("[serve]\nwait = \"120s\"\npatience = \"200ms\"\n")
        .config(&real)
        .model("a", "64MiB", "delay_ms=20 events=10 event_ms=10 fail=drop_at_depth:1000", "pin = true")
        .model("b", "64MiB", "delay_ms=20 events=10 event_ms=10", "pin = true")
        .model("wide", "64MiB", "delay_ms=20 answer_bytes=2000000", "pin = true")
        .model("c", "300MiB", swapped, "")
        .model("d", "300MiB", swapped, "")
        .after(STDERR_UNREAD)
        .argument("--engine")
        .argument(&program().display().to_string())
        .start();
    (daemon, folder)
}

#[allow(clippy::print_stderr, reason = "the table is the result of the measurement")]
fn run(course: Course) {
    let (daemon, _folder) = serve();
    let is_warden = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0warden\0"))
    };
    until("the warden runs", || descendants(daemon.pid()).iter().any(is_warden));
    let children = descendants(daemon.pid()).len();
    for model in ["a", "b", "wide", "real", "c"] {
        assert_eq!(fleet::chat(daemon.address, model).status, 200, "{model}");
    }
    let (files, resident) = (daemon.open_files(), resident(&daemon));
    let stage = Stage { address: daemon.address, phase: AtomicU8::new(0), tally: Tally::default() };
    let began = Instant::now();
    thread::scope(|scope| {
        for number in 0..BYSTANDERS {
            scope.spawn({
                let stage = &stage;
                move || bystanders::attend(stage, number)
            });
        }
        for way in &WAYS {
            scope.spawn(|| offenders::attend(&stage, way));
        }
        stage.play(course);
    });
    eprintln!("{} clients, {:.0?}\n{}", BYSTANDERS + WAYS.len(), began.elapsed(), stage.tally);
    left_nothing_behind(&daemon, files, resident, children);
    stage.tally.check();
}

#[allow(clippy::print_stderr, reason = "the table is the result of the measurement")]
fn left_nothing_behind(daemon: &Daemon, files: usize, before: u64, children: usize) {
    until("every model is idle", || {
        let status = daemon.status();
        let models = status["models"].as_array().expect("a list").clone();
        models.iter().all(|model| model["in_flight"] == 0)
    });
    let unload = http::post(daemon.address, "/api/models/unload", &json!({}));
    assert_eq!(unload.status, 200, "{}", unload.text());
    until("every engine is gone", || daemon.engines().is_empty());
    until("every child is gone", || descendants(daemon.pid()).len() <= children);
    until("every claim is released", || daemon.claimed() == 0);
    until("every descriptor is closed", || daemon.open_files() <= files);
    eprintln!(
        "RSS {} MiB before, {} MiB after; descriptors {files} and {}; claims 0; children {children} and {}",
        before / MIB,
        resident(daemon) / MIB,
        daemon.open_files(),
        descendants(daemon.pid()).len()
    );
    until("resident memory is back", || resident(daemon) <= before + RESIDENT_GROWTH);
}

/// Bytes of the daemon in RAM.
fn resident(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap();
    kib * 1024
}

#[test]
fn long_sixteen_hostile_clients_of_sixty_four_cost_the_others_nothing() {
    run(Course { quiet: Duration::from_secs(5), hostile: Duration::from_secs(6), rounds: 2 });
}

#[test]
fn long_an_hour_of_hostile_clients_costs_the_others_nothing() {
    run(Course { quiet: Duration::from_secs(60), hostile: Duration::from_secs(60), rounds: 30 });
}
