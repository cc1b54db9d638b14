//! Test of `plimsoll serve` with an engine build that it does not know: it asks a real llama.cpp, on a
//! simulated card, for its memory.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_specimens::Changes;
use serde_json::Value;
use tempfile::TempDir;

use super::cuda::engine;
use crate::built::built;
use crate::daemon::{Daemon, Setup};
use crate::http;

const CARD: &str = "name=A,total=80GiB,cc=8.9";
const FLAGS: &str = "-c 8192 -fa on";
const REPORTED: &str = "as the engine reports";
const ASKING: &str = "asking ";
const MIB: u64 = 1 << 20;

/// Models that differ in their layers, beside one that a fake engine serves.
struct UnseenFleet {
    folder: TempDir,
    files: Vec<PathBuf>,
}

impl UnseenFleet {
    fn new(models: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |number| {
            let file = folder.path().join(format!("m{number}.gguf"));
            let changes = Changes { layers: Some(number + 1), ..Changes::default() };
            plimsoll_specimens::write("l8", &file, &changes).unwrap();
            file
        };
        let files = (0..models).map(file).collect();
        Self { folder, files }
    }

    /// Starts a daemon; returns it and the time until it could be asked.
    fn start(&self) -> (Daemon, Duration) {
        let mut config = String::new();
        for (number, file) in self.files.iter().enumerate() {
            let file = file.display();
            writeln!(config, "[models.m{number}]\nmodel = \"{file}\"\nflags = \"{FLAGS}\"").unwrap();
        }
        let variables = [
            ("PLIMSOLL_PHANTOM_LIBRARY", phantom()),
            ("GGML_BACKEND_PATH", engine().backend.clone()),
            ("LD_LIBRARY_PATH", engine().libraries.clone()),
            ("XDG_CACHE_HOME", self.folder.path().to_owned()),
        ];
        let setup = Setup::with_cards(&[CARD])
            .config(&config)
            .model("chat", "64MiB", "delay_ms=1", "")
            .argument("--engine")
            .argument(&engine().program.display().to_string())
            .argument("--guard=off")
            .variable("RUST_LOG", "info,plimsoll_runtime=debug")
            .variable("PLIMSOLL_NVML", "");
        let setup =
            variables.iter().fold(setup, |setup, (name, path)| setup.variable(name, path.to_str().unwrap()));
        let began = Instant::now();
        let daemon = setup.start();
        assert_eq!(http::get(daemon.address, "/health").status, 200);
        (daemon, began.elapsed())
    }

    /// The peak that `plan --exact` prints, in whole MiB.
    fn planned(&self, file: &Path) -> u64 {
        let mut plan = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        plan.args(["plan", "--json", "--card", CARD])
            .arg(format!("--exact={}", engine().program.display()))
            .args(["--", "-m"])
            .arg(file)
            .args(FLAGS.split_whitespace())
            .env("PLIMSOLL_PHANTOM_LIBRARY", phantom())
            .env("XDG_CACHE_HOME", self.folder.path());
        engine().prepare(&engine().backend, &mut plan);
        let plan: Value = serde_json::from_slice(&plan.output().unwrap().stdout).unwrap();
        plan["cards"][0]["peak"].as_u64().unwrap() / MIB
    }
}

fn phantom() -> PathBuf {
    built("libplimsoll_phantom.so", "plimsoll-phantom")
}

/// The need of a model in MiB, if its engine has reported it.
fn reported(daemon: &Daemon, number: usize) -> Option<u64> {
    let talk = daemon.talk();
    let mut lines = talk.lines().filter(|line| line.contains(REPORTED));
    let line = lines.find(|line| line.split_whitespace().any(|word| word == format!("m{number}")))?;
    line.split_whitespace().rev().find_map(|word| word.parse().ok())
}

fn is_complete(daemon: &Daemon, models: usize) -> bool {
    (0..models).all(|number| reported(daemon, number).is_some())
}

/// Course of a daemon that meets an unseen engine.
#[derive(Debug)]
struct Course {
    ready: Duration,
    requested: Duration,
    slowest_request: Duration,
    requests: u32,
    ready_again: Duration,
}

fn run(models: u32) -> Course {
    let fleet = UnseenFleet::new(models);
    let count = fleet.files.len();
    let (daemon, ready) = fleet.start();
    let (began, mut slowest_request, mut requests) = (Instant::now(), Duration::ZERO, 0);
    assert_eq!(http::chat(daemon.address, "chat").status, 200);
    while !is_complete(&daemon, count) {
        assert!(began.elapsed() < Duration::from_secs(180), "{}", daemon.talk());
        let sent = Instant::now();
        assert_eq!(http::chat(daemon.address, "chat").status, 200);
        slowest_request = slowest_request.max(sent.elapsed());
        requests += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    let requested = began.elapsed();
    assert_eq!(daemon.talk().matches(ASKING).count(), count, "each is asked once");
    for (number, file) in fleet.files.iter().enumerate().step_by(count / 2) {
        // Both are rounded to whole MiB.
        let (reported, planned) = (reported(&daemon, number).unwrap(), fleet.planned(file));
        assert!(reported.abs_diff(planned) <= 1, "m{number}: {reported} and {planned}");
    }
    // SIGKILL: only what is on disk is left.
    drop(daemon);
    let (daemon, ready_again) = fleet.start();
    crate::daemon::until("every kept answer is in use", || is_complete(&daemon, count));
    assert!(!daemon.talk().contains(ASKING), "no engine is asked: {}", daemon.talk());
    Course { ready, requested, slowest_request, requests, ready_again }
}

#[test]
fn an_unseen_engine_is_asked_once_for_each_model_and_requests_are_answered_meanwhile() {
    let course = run(3);
    assert!(course.requests > 0, "{course:?}");
}

#[allow(clippy::print_stderr, reason = "the figures are the result of the measurement")]
#[test]
fn long_forty_models_of_an_unseen_engine_delay_neither_the_start_nor_a_request() {
    let course = run(40);
    eprintln!("{course:?}");
    let start = Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 100 });
    assert!(course.ready < start && course.ready_again < start, "{course:?}");
    assert!(course.requested < Duration::from_secs(60), "{course:?}");
    assert!(course.slowest_request < Duration::from_millis(250), "{course:?}");
}
