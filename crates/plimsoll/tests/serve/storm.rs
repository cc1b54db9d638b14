//! Test of a thousand random faults, after which no file descriptor, process or memory grant is left.
//!
//! Every fault hits a different model, because a model that has failed is not loaded again for a while.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::daemon::{Daemon, Setup, until};
use crate::http;
use crate::http::{chat, chat_body, chat_stream, post};

const CLIENTS: usize = 4;
const COPIES: usize = 125;

/// What can be wrong with a model, and the answers that its clients may get.
const KINDS: [(&str, &str, &[u16]); 8] = [
    ("good", "", &[200]),
    ("crash", "fail=crash_at_load", &[500]),
    ("signal", "fail=signal_at_load:KILL", &[503]),
    ("oom", "fail=oom_at_load", &[503]),
    ("deep", "fail=oom_at_depth:1", &[503]),
    ("torn", "fail=crash_mid_stream:2:torn events=5", &[200]),
    ("short", "die_after_ms=5 delay_ms=10", &[200, 503]),
    ("deaf", "ignore_term=1", &[200]),
];

#[test]
fn a_thousand_random_faults_leave_nothing_behind() {
    storm(Setup::new(), COPIES, |setup, name, script, more| {
        let memory = if name == "sound" { "100MiB" } else { "300MiB" };
        setup.model(name, memory, script, more)
    });
}

/// So many models with each fault, made by `model` from a name, a script and further lines.
pub(super) fn storm(setup: Setup, copies: usize, model: impl Fn(Setup, &str, &str, &str) -> Setup) {
    let setup = setup.config("[serve]\npatience = \"50ms\"\nwait = \"60s\"\n");
    let mut setup = model(setup, "sound", "", "");
    let count = KINDS.len() * copies;
    for number in 0..count {
        let (name, script, _) = KINDS[number % KINDS.len()];
        setup = model(setup, &format!("{name}{number}"), script, "stop-timeout = \"200ms\"");
    }
    let daemon = setup.start();
    assert_eq!(chat(daemon.address, "sound").status, 200);
    let files = daemon.open_files();

    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (daemon, next) = (&daemon, &next);
            let mut dice = Dice::new(client);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    one_fault(daemon, number, &mut dice);
                }
            });
        }
    });

    assert_eq!(chat(daemon.address, "sound").status, 200, "it still serves");
    assert_eq!(post(daemon.address, "/api/models/unload", &json!({})).status, 200);
    until("every engine is gone", || daemon.engines().is_empty());
    until("the ledger is back to zero", || daemon.claimed() == 0);
    until("every file descriptor is closed", || daemon.open_files() <= files);
}

fn one_fault(daemon: &Daemon, number: usize, dice: &mut Dice) {
    let (name, _, allowed) = KINDS[number % KINDS.len()];
    let model = format!("{name}{number}");
    if dice.below(4) == 0 {
        // The client leaves at a random moment: while it waits, loads or streams.
        let body = chat_body(&model, dice.below(2) == 0);
        let leaving = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&body));
        std::thread::sleep(Duration::from_millis(dice.below(30)));
        drop(leaving);
        return;
    }
    let answer = chat_stream(daemon.address, &model);
    assert!(allowed.contains(&answer.status), "{model}: {} {}", answer.status, answer.text());
    match answer.status {
        200 => drop(answer.events()),
        _ => assert!(answer.json()["error"]["reason"].is_object(), "{model}: {}", answer.text()),
    }
}

/// xorshift64*: the same storm every time.
struct Dice(u64);

impl Dice {
    fn new(seed: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::try_from(seed + 1).expect("a small seed"))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }
}
