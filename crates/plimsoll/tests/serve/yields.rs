//! Tests of memory that models free for other programs (yields), on a fake card that both share.

use std::io::{BufRead, BufReader, Lines};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::built::built;
use crate::daemon::{Daemon, Setup, alive, until};
use crate::http::{self, chat, chat_body, get, post};
use crate::pages::real::driver;

const CHAT: &str = "/v1/chat/completions";
const UUID: &str = "GPU-00000016-0000-0000-0000-000000000000";
const GIB: u64 = 1 << 30;
/// Takes so many bytes of the card at a time, in so many steps, and says after each whether it got them.
const GROWER: &str = r#"
import ctypes, sys, time
name, size, steps, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
open("/proc/self/comm", "w").write(name)
cuda = ctypes.CDLL("libcuda.so.1")
device, context, place = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
failed = failed or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or cuda.cuCtxSetCurrent(context)
print(failed, flush=True)
for _ in range(steps):
    time.sleep(pause)
    print(cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(size)), flush=True)
time.sleep(600)
"#;

/// A card of 16 GiB.
struct SharedCard {
    driver: TempDir,
}

/// A program that is no engine of the daemon's.
struct Foreign {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Foreign {
    /// The driver's next answer: 0, or the code of its error.
    fn answer(&mut self) -> String {
        self.lines.next().expect("it says more").expect("text")
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl SharedCard {
    fn new() -> Self {
        Self { driver: driver(&built("libplimsoll_fake_cuda.so", "fake-cuda")) }
    }

    fn variables(&self) -> [(&'static str, String); 2] {
        let folder = self.driver.path().display();
        let words = format!("uuids={UUID} total=16G context=256M shared={folder}/usage");
        [("LD_LIBRARY_PATH", folder.to_string()), ("CUDA_FAKE", words)]
    }

    /// A daemon with four models of so many bytes. The answers of the first three take so many milliseconds.
    fn serve(&self, settings: &str, delay: u64, memory: u64) -> Daemon {
        let usage = self.driver.path().join("usage");
        let shown = json!([{"uuid": UUID, "name": "Fake 16G", "total": 16 * GIB, "free": 16 * GIB, "usage": usage,
                            "pci": "00000000:01:00.0"}]);
        let mut setup = Setup::with_cards(&[])
            .config(&format!("[serve]\nguard = {{ mode = \"off\" }}\nreserve = \"0\"\n{settings}\n"))
            .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
            .variable("PLIMSOLL_FAKE_NVML_CARDS", &shown.to_string());
        for (name, value) in self.variables() {
            setup = setup.variable(name, &value);
        }
        for name in ["a", "b", "c", "d"] {
            let delay = if name == "d" { 0 } else { delay };
            // The context is beside it.
            let script = format!("cuda=1 vram={} delay_ms={delay}", memory - GIB / 2);
            setup = setup.model(name, &format!("{}MiB", memory >> 20), &script, "");
        }
        let daemon = setup.start();
        for name in ["a", "b", "c", "d"] {
            let loaded = post(daemon.address, "/models/load", &json!({"model": name}));
            assert_eq!(loaded.status, 200, "{}", loaded.text());
            until(&format!("{name} is up"), || daemon.running().contains(&name.to_owned()));
        }
        assert_eq!(daemon.running(), ["a", "b", "c", "d"]);
        daemon
    }

    /// A program of this name that takes `size` bytes so many times.
    fn grows(&self, name: &str, size: u64, steps: u64, pause: f64) -> Foreign {
        let words = [name.to_owned(), size.to_string(), steps.to_string(), pause.to_string()];
        let mut child = Command::new("python3")
            .args(["-I", "-c", GROWER])
            .args(words)
            .envs(self.variables())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut foreign = Foreign { child, lines };
        assert_eq!(foreign.answer(), "0");
        foreign
    }

    /// Bytes that living processes hold, as the driver counts them.
    fn used(&self) -> u64 {
        let bytes = std::fs::read(self.driver.path().join("usage")).expect("the driver's file");
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let living = words
            .as_chunks::<10>()
            .0
            .iter()
            .filter(|record| u32::try_from(record[0]).is_ok_and(|pid| pid != 0 && alive(pid)));
        living.map(|record| record[2]).sum()
    }
}

fn plimsoll(daemon: &Daemon, words: &[&str]) -> String {
    let url = format!("http://{}", daemon.address);
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(words).env("PLIMSOLL_URL", url).output();
    let output = output.expect("plimsoll starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn busy(daemon: &Daemon, names: &[&str]) -> Vec<TcpStream> {
    let open = |name: &&str| http::open(daemon.address, "POST", CHAT, Some(&chat_body(name, true)));
    let streams = names.iter().map(open).collect();
    until("all are busy", || {
        let models = daemon.status()["models"].clone();
        let models = models.as_array().expect("models").iter();
        let sum: u64 = models.filter_map(|model| model["in_flight"].as_u64()).sum();
        usize::try_from(sum) == Ok(names.len())
    });
    streams
}

/// Returns the times to the end of the idle model, and from the last answer of the busy ones to the free
/// room.
fn yields_eight(delay: u64) -> (Duration, Duration) {
    let card = SharedCard::new();
    let daemon = card.serve("", delay, 4 * GIB);
    let streams = busy(&daemon, &["a", "b", "c"]);
    let requested = Instant::now();
    let reported = plimsoll(&daemon, &["yield", "8GiB", "--for", "1h"]);
    // The time that is left is told, which may be a moment less.
    assert!(reported.starts_with("Fake 16G keeps 8192 MiB free for other programs for "), "{reported}");
    until("the idle model is gone", || card.used() < 13 * GIB);
    let idle = requested.elapsed();
    // No request is lost: neither of the model that leaves nor of those that stay.
    for stream in &streams {
        let answer = http::read(stream);
        let last = answer.events().pop();
        assert_eq!((answer.status, answer.whole, last.as_deref()), (200, true, Some("[DONE]")));
    }
    let answered = Instant::now();
    until("the room is free", || card.used() <= 8 * GIB);
    let room = answered.elapsed();
    until("it is given back", || daemon.claimed() == 8 * GIB);
    assert_eq!(daemon.running().len(), 2, "one of the busy ones has left");
    // A model is loaded in the place of an idle one, and not into the room.
    assert_eq!(chat(daemon.address, "d").status, 200);
    assert!(card.used() <= 8 * GIB && daemon.claimed() <= 8 * GIB);
    let metrics = get(daemon.address, "/metrics").text();
    assert!(metrics.contains("plimsoll_yield_bytes{card=\"Fake 16G\"} 8589934592\n"), "{metrics}");
    assert_eq!(daemon.status()["cards"][0]["yield"]["lacks"], 0);
    // Another program takes the room.
    let mut foreign = card.grows("game", GIB, 7, 0.0);
    assert!((0..7).all(|_| foreign.answer() == "0"));
    assert_eq!(daemon.running().len(), 2);
    drop(foreign);
    plimsoll(&daemon, &["yield", "16GiB"]);
    until("all are gone", || card.used() == 0 && daemon.claimed() == 0);
    let refused = chat(daemon.address, "d");
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &Value::from("no_room")));
    assert!(refused.text().contains("`plimsoll yield` keeps free"), "{}", refused.text());
    assert_eq!(plimsoll(&daemon, &["yield", "--end"]), "no memory is kept free for other programs\n");
    until("it is loaded again", || chat(daemon.address, "d").status == 200);
    daemon.reported("8192 MiB of Fake 16G are kept free for other programs");
    (idle, room)
}

#[test]
fn idle_models_leave_at_once_busy_ones_after_their_answer_and_none_enters() {
    yields_eight(1500);
}

#[test]
fn long_idle_models_are_gone_within_a_second_and_the_room_is_free_within_two() {
    let (idle, room) = yields_eight(10_000);
    assert!(idle < Duration::from_secs(1) && room < Duration::from_secs(2), "{idle:?}, {room:?}");
}

#[test]
fn a_yield_ends_by_itself_and_the_request_that_waited_is_answered() {
    let card = SharedCard::new();
    let daemon = card.serve("", 0, 4 * GIB);
    let order = json!({"size": 16 * GIB, "card": "Fake 16G", "for": 3});
    assert_eq!(post(daemon.address, "/api/yield", &order).status, 200);
    until("all are gone", || card.used() == 0);
    assert_eq!(chat(daemon.address, "d").status, 200);
    assert_eq!(get(daemon.address, "/api/yield").json(), json!({"yields": []}));
    for (order, status) in [
        (json!({"size": "17GiB"}), 400),
        (json!({"size": "1GiB", "card": "another"}), 404),
        (json!({"size": "1GiB", "for": u64::MAX}), 200),
    ] {
        let answer = post(daemon.address, "/api/yield", &order);
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

/// A program takes 256 MiB at a time until only the busy model is left beside it.
fn grows_alongside(margin: &str, pause: f64) {
    let card = SharedCard::new();
    let daemon = card.serve(&format!("yield-below = \"{margin}\""), 60_000, 3 * GIB);
    let _busy = busy(&daemon, &["a"]);
    let mut foreign = card.grows("train", GIB / 4, 36, pause);
    for step in 1..=36 {
        assert_eq!(foreign.answer(), "0", "step {step} of 256 MiB: {:?}", daemon.running());
    }
    until("the idle ones are gone", || daemon.running() == ["a"]);
    daemon.reported("other programs take more memory of Fake 16G");
}

#[test]
fn a_program_that_grows_finds_memory_while_idle_models_are_there_to_leave() {
    grows_alongside("3GiB", 0.15);
}

#[test]
fn long_a_program_that_grows_finds_memory_beside_a_margin_of_a_gibibyte() {
    grows_alongside("1GiB", 0.3);
}

#[test]
fn idle_models_leave_for_a_program_with_precedence_that_starts() {
    let card = SharedCard::new();
    let daemon = card.serve("yield-to = [\"Blender\"]", 60_000, 3 * GIB);
    let _busy = busy(&daemon, &["a"]);
    let _other = card.grows("another", 1 << 20, 0, 0.0);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(daemon.running().len(), 4);
    let _blender = card.grows("blender", 1 << 20, 0, 0.0);
    until("the idle ones are gone", || daemon.running() == ["a"]);
    daemon.reported("idle models on it are unloaded");
    // It started once, and models that are asked for come back.
    until("it is loaded again", || chat(daemon.address, "d").status == 200);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(daemon.running(), ["a", "d"]);
}
