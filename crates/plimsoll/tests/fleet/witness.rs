//! Observers of a fleet under faults: clients that check every response, and checks of the engines on each
//! host.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

use super::nemesis::{CROWDED, HOSTS, MODELS, ROOM, draw};
use crate::daemon::{self, Daemon};
use crate::http::{self, Answer};

const PATIENCE: Duration = Duration::from_secs(90);

/// The daemon of a host, as a client knows it.
pub(crate) struct Gate {
    address: Mutex<SocketAddr>,
    pid: AtomicU32,
    /// Kills and starts so far: odd while the daemon is dead.
    turns: AtomicU32,
}

impl Gate {
    pub(crate) fn new(daemon: &Daemon) -> Self {
        Self {
            address: Mutex::new(daemon.address),
            pid: AtomicU32::new(daemon.pid()),
            turns: AtomicU32::new(0),
        }
    }

    pub(crate) fn close(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn open(&self, daemon: &Daemon) {
        *self.address.lock().unwrap() = daemon.address;
        self.pid.store(daemon.pid(), Ordering::SeqCst);
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    /// The turn of a daemon that lives.
    fn turn(&self) -> Option<u32> {
        Some(self.turns.load(Ordering::SeqCst)).filter(|turns| turns.is_multiple_of(2))
    }

    fn ask(&self, model: &str, stream: bool) -> Option<Answer> {
        let mut connection = TcpStream::connect(*self.address.lock().unwrap()).ok()?;
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = http::chat_body(model, stream).to_string();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close";
        let length = body.len();
        write!(
            connection,
            "{head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        Some(http::read(&connection))
    }

    /// The host that answers for the model; the inner `None` is this very one.
    pub(crate) fn host_of(&self, model: &str) -> Option<Option<String>> {
        let answer = self.ask(model, false).filter(|answer| answer.status == 200)?;
        Some(answer.header("plimsoll-host").map(str::to_owned))
    }

    pub(crate) fn answers(&self, model: &str) -> bool {
        let answered = self.ask(model, false).is_some_and(|answer| answer.status == 200 && answer.whole);
        if !answered {
            sleep(Duration::from_millis(100));
        }
        answered
    }
}

/// What a client has seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Identities of the answers: an engine gives each once.
    pub(crate) answered: Vec<String>,
    pub(crate) refused: u64,
    pub(crate) faults: Vec<String>,
}

/// Asks one daemon after the other until it is over.
pub(crate) fn client(seed: u64, gates: &[Arc<Gate>], over: &AtomicBool) -> Seen {
    let (mut random, mut seen) = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, Seen::default());
    let mut below = |most: usize| usize::try_from(draw(&mut random, most as u64)).unwrap();
    while !over.load(Ordering::Relaxed) {
        let (gate, model) = (&gates[below(HOSTS)], MODELS[below(MODELS.len())]);
        let streams = below(2) == 0;
        let before = gate.turn();
        let answer = gate.ask(model, streams);
        let has_lived = before.is_some() && gate.turn() == before;
        match answer {
            Some(answer) if answer.whole => judge(&answer, model, streams, &mut seen),
            // Only a daemon that was killed may leave a client without an answer.
            _ if !has_lived => {}
            other => seen.faults.push(format!("a request of '{model}' without an end: {other:?}")),
        }
        sleep(Duration::from_millis(20 + below(150) as u64));
    }
    seen
}

/// Asks for a model by more streams at once than one host gets from one router, until it is over.
pub(crate) fn crowds(seed: u64, gates: &[Arc<Gate>], over: &AtomicBool) -> Seen {
    let (mut random, mut seen) = (seed.wrapping_mul(0xD1B5_4A32_D192_ED03) | 1, Seen::default());
    let mut below = |most: usize| usize::try_from(draw(&mut random, most as u64)).unwrap();
    while !over.load(Ordering::Relaxed) {
        let (gate, model) = (&gates[below(HOSTS)], CROWDED[below(CROWDED.len())]);
        let before = gate.turn();
        let ask = |number: usize| {
            let gate = Arc::clone(gate);
            spawn(move || {
                // One after the other: the first ones are in progress when the last one comes.
                sleep(Duration::from_millis(40 * number as u64));
                gate.ask(model, true)
            })
        };
        let crowd: Vec<_> = (0..8).map(ask).collect();
        for requested in crowd {
            let answer = requested.join().unwrap();
            let has_lived = before.is_some() && gate.turn() == before;
            match answer {
                Some(answer) if answer.whole => judge(&answer, model, true, &mut seen),
                _ if !has_lived => {}
                other => seen.faults.push(format!("a request of '{model}' without an end: {other:?}")),
            }
        }
        sleep(Duration::from_millis(200 + below(1500) as u64));
    }
    seen
}

fn judge(answer: &Answer, model: &str, streams: bool, seen: &mut Seen) {
    match (answer.status, streams) {
        (200, true) => {
            let events = answer.events();
            let last = events.last().map(String::as_str);
            // A host that dies in the middle is told in the stream.
            let is_error = events.iter().any(|event| event.contains("\"error\""));
            let ends = events.iter().filter(|event| *event == "[DONE]").count();
            match (last, ends, is_error) {
                (Some("[DONE]"), 1, false) => seen.answered.push(identity(events[0].as_bytes())),
                (Some(_), _, true) => seen.refused += 1,
                _ => seen.faults.push(format!("a stream of '{model}' without its end: {}", answer.text())),
            }
        }
        (200, false) => {
            let is_of_model = answer.json()["model"] == *model;
            if is_of_model {
                seen.answered.push(identity(&answer.body))
            } else {
                seen.faults.push(format!("another model than '{model}': {}", answer.text()))
            }
        }
        (502 | 503, _) if answer.json()["error"]["code"].is_string() => seen.refused += 1,
        _ => seen.faults.push(format!("'{model}': {} {}", answer.status, answer.text())),
    }
}

/// Counts the engines of each host, which has room for two; gives the number of looks.
pub(crate) fn watch_cards(gates: &[Arc<Gate>], over: &AtomicBool) -> u64 {
    let mut looks = 0;
    while !over.load(Ordering::Relaxed) {
        for gate in gates.iter().filter(|gate| gate.turn().is_some()) {
            let engines = daemon::engines_of(gate.pid.load(Ordering::SeqCst));
            assert!(engines.len() <= ROOM, "{engines:?}");
            looks += 1;
        }
        sleep(Duration::from_millis(100));
    }
    looks
}

fn identity(json: &[u8]) -> String {
    let answer: serde_json::Value = serde_json::from_slice(json).unwrap();
    answer["id"].as_str().expect("an answer has an identity").to_owned()
}
