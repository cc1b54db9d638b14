//! Tests of loads during which another process takes the card's memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::guarded::{deep, model};
use crate::built::built;
use crate::daemon::{Daemon, Setup, descendants, until};
use crate::http::{Answer, chat, post};
use crate::pages::real::{driver, guard, take};

const GIB: u64 = 1 << 30;
const ROUNDS: u64 = 20;
/// A reading counts for 50 ms. The rest is for the start of the process; what the daemon waits for a
/// processor comes on top.
const LATEST_START_MS: u64 = 50 + 200;

/// The other process, and the card as the driver shows it.
struct Neighbour {
    folder: TempDir,
    process: Child,
}

impl Neighbour {
    fn new() -> Self {
        let process = Command::new("sleep").arg("600").spawn().expect("sleep runs");
        let neighbour = Self { folder: tempfile::tempdir().expect("a temporary folder"), process };
        neighbour.holds(0);
        neighbour
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("cards.json")
    }

    fn holds(&self, gib: u64) {
        let processes = match gib {
            0 => json!([]),
            _ => json!([{"pid": self.process.id(), "used": gib * GIB}]),
        };
        let card = json!([{"uuid": "GPU-bbbb", "name": "Fake 24G", "total": 24 * GIB, "free": (24 - gib) * GIB,
                           "cc": [8, 9], "pci": "00000000:00:00.0", "processes": processes}]);
        // Renamed into place, because the library may read the file at any moment.
        let new = self.file().with_extension("new");
        fs::write(&new, card.to_string()).expect("a written file");
        fs::rename(new, self.file()).expect("a renamed file");
    }

    fn serve(&self) -> Daemon {
        let library = built("libnvidia_ml.so", "fake-nvml");
        Setup::with_cards(&[])
            .variable("PLIMSOLL_NVML", &library.to_string_lossy())
            .variable("PLIMSOLL_FAKE_NVML_CARDS", &format!("@{}", self.file().display()))
            .model("a", "8GiB", "load_ms=100", "")
            .start()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Milliseconds since the machine started.
fn uptime() -> u64 {
    let text = fs::read_to_string("/proc/uptime").expect("Linux");
    let seconds = text.split(' ').next().expect("two numbers");
    seconds.replace('.', "").parse::<u64>().expect("a number") * 10
}

/// The moment in which a process was started, in the same clock.
fn started(process: u64) -> u64 {
    let stat =
        fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).expect("it runs");
    let fields = stat.rsplit(") ").next().expect("fields follow the name");
    let ticks: u64 = fields.split(' ').nth(19).and_then(|ticks| ticks.parse().ok()).expect("a number");
    ticks * 10
}

/// Milliseconds that the threads of these processes have waited for a processor, as the kernel counts them.
fn waited(processes: &[u32]) -> u64 {
    let threads = processes.iter().filter_map(|process| fs::read_dir(format!("/proc/{process}/task")).ok());
    let threads = threads.flatten();
    // A thread may end while they are read.
    let schedstat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("schedstat")).ok();
    let nanoseconds = |text: String| text.split(' ').nth(1)?.parse::<u64>().ok();
    threads.filter_map(|thread| nanoseconds(schedstat(thread.ok()?)?)).sum::<u64>() / 1_000_000
}

/// Every reason in the tree that has this code.
fn with_code<'a>(reason: &'a Value, code: &str) -> Vec<&'a Value> {
    let causes = reason["because"].as_array().into_iter().flatten();
    let below = causes.flat_map(|cause| with_code(cause, code));
    let own = (reason["code"] == code).then_some(reason);
    own.into_iter().chain(below).collect()
}

/// A refusal names the process and its bytes.
fn names(answer: &Answer, neighbour: &Neighbour) {
    assert_eq!(answer.status, 503, "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "no_room", "{error}");
    let holders = with_code(&error["reason"], "holder");
    assert_eq!(holders.len(), 1, "{error}");
    let facts = json!({"name": "sleep", "process": neighbour.process.id(), "used": 20 * GIB});
    assert_eq!(holders[0]["facts"], facts, "{error}");
}

#[test]
fn no_load_begins_on_memory_that_another_process_took_at_any_moment_around_it() {
    let neighbour = Neighbour::new();
    let daemon = neighbour.serve();
    // The daemon, and its helper that reads the card.
    let processes = [descendants(daemon.pid()), vec![daemon.pid()]].concat();
    let mut refused = 0;
    for round in 0..ROUNDS {
        // From 600 ms before the request to 150 ms after it; the reading of every second may lie anywhere
        // between.
        let offset = (round * 7919) % 750;
        let (take_after, ask_after) = (150_u64.saturating_sub(offset), offset.saturating_sub(150));
        thread::sleep(Duration::from_millis(100));
        let before = waited(&processes);
        let (taken, answer) = thread::scope(|scope| {
            let taker = scope.spawn(|| {
                thread::sleep(Duration::from_millis(take_after));
                neighbour.holds(20);
                uptime()
            });
            thread::sleep(Duration::from_millis(ask_after));
            let answer = chat(daemon.address, "a");
            (taker.join().expect("no panic"), answer)
        });
        if answer.status == 200 {
            let process = answer.json()["fake"]["pid"].as_u64().expect("a process");
            let (began, waited) = (started(process), waited(&processes).saturating_sub(before));
            assert!(
                began <= taken + LATEST_START_MS + waited,
                "round {round}: taken at {taken} ms, begun at {began} ms; waited {waited} ms for a processor"
            );
            assert_eq!(post(daemon.address, "/unload", &Value::Null).status, 200);
            until("it is unloaded", || daemon.engines().is_empty());
        } else {
            refused += 1;
            names(&answer, &neighbour);
        }
        neighbour.holds(0);
    }
    assert!(refused >= ROUNDS / 2, "{refused} of {ROUNDS} were refused");
    let model = &daemon.status()["models"][0];
    assert_eq!((&model["learned"], &model["overflows"]), (&json!(0), &json!(0)), "{model}");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(chat(daemon.address, "a").status, 200);
    assert_eq!(daemon.claimed(), 8 * GIB);
}

/// The card of fake-cuda, as the driver shows it while a process holds this much.
fn show(file: &Path, used: u64, process: u32) {
    let processes = if used == 0 { json!([]) } else { json!([{"pid": process, "used": used}]) };
    let card = json!([{"uuid": FAKE_CARD, "name": "Fake 8G", "total": 8 * GIB, "free": 8 * GIB - used,
                       "pci": "00000000:01:00.0", "processes": processes}]);
    let new = file.with_extension("new");
    fs::write(&new, card.to_string()).expect("a written file");
    fs::rename(new, file).expect("a renamed file");
}

const FAKE_CARD: &str = "GPU-00000002-0000-0000-0000-000000000000";

#[test]
fn an_engine_that_dies_serving_because_a_neighbour_took_the_card_names_it_and_its_claim_stays() {
    let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
    let in_driver = |name: &str| driver.path().join(name).to_string_lossy().into_owned();
    let (words, cards) = (
        format!("uuids={FAKE_CARD} total=8G context=64M shared={}", in_driver("shared")),
        in_driver("cards"),
    );
    show(Path::new(&cards), 0, 0);
    let script = format!("cuda=1 vram={} vram_per_token=65536", GIB / 2);
    let daemon = Setup::with_cards(&[])
        .model("a", "2GiB", &script, "")
        .argument("--reserve")
        .argument("0")
        .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
        .variable("PLIMSOLL_FAKE_NVML_CARDS", &format!("@{cards}"))
        .variable("PLIMSOLL_GUARD_LIBRARY", &guard().to_string_lossy())
        .variable("LD_LIBRARY_PATH", &driver.path().to_string_lossy())
        .variable("CUDA_FAKE", &words)
        .start();
    assert_eq!(deep(&daemon, "a", 1000).status, 200);
    // 574 MiB and two contexts of 64 MiB leave 90 MiB for the answer of 1250 MiB.
    let mut neighbour = Command::new(take())
        .args([
            "7400".to_owned(),
            format!("touch={}", in_driver("taken")),
            format!("until={}", in_driver("end")),
        ])
        .env("LD_LIBRARY_PATH", driver.path())
        .env("PLIMSOLL_FAKE_CUDA", &words)
        .spawn()
        .expect("it runs");
    until("the neighbour has its memory", || driver.path().join("taken").exists());
    show(Path::new(&cards), 7464 << 20, neighbour.id());
    let answer = deep(&daemon, "a", 20_000);
    let status = daemon.status();
    let _ = neighbour.kill();
    let _ = neighbour.wait();
    assert_eq!(answer.status, 503, "{}", answer.text());
    let facts = with_code(&answer.json()["error"]["reason"], "holder")[0]["facts"].clone();
    assert_eq!(
        (&facts["process"], &facts["used"]),
        (&json!(neighbour.id()), &json!(7464_u64 << 20)),
        "{facts}"
    );
    let model = model(&status, "a");
    assert_eq!((&model["learned"], &model["overflows"]), (&json!(0), &json!(0)), "{model}");
    daemon.reported("ran out of card memory while serving");
}
