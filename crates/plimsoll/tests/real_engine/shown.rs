//! Tests of the status stream and of dry runs (`/api/what-if`), with a real llama.cpp.
//!
//! The stream shows each change within 300 ms, and real loads go as the dry run predicted.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use super::fleet::{self, Fleet, Member};
use crate::daemon::until;
use crate::http;

const WITHIN: f64 = 0.3;

/// What a listener to the stream has seen.
#[derive(Debug, Default)]
struct Seen {
    /// The least time from a mark to the document that shows it, by its kind. A busy machine delays single
    /// events.
    soonest: BTreeMap<String, f64>,
    marks: Vec<Value>,
}

impl Seen {
    fn take(&mut self, document: &Value) {
        let now = document["now"].as_f64().unwrap();
        for mark in document["marks"].as_array().unwrap() {
            let late = now - mark["at"].as_f64().unwrap();
            let kind = mark["kind"].as_str().unwrap().to_owned();
            let soonest = self.soonest.entry(kind).or_insert(late);
            *soonest = soonest.min(late);
            self.marks.push(mark.clone());
        }
    }

    fn stops(&self) -> Vec<u64> {
        let stops = self.marks.iter().filter(|mark| mark["kind"] == "stop");
        stops.map(|mark| mark["model"].as_u64().unwrap()).collect()
    }
}

fn listen(address: SocketAddr) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let stream = http::open(address, "GET", "/api/status/stream", None);
    let shared = Arc::clone(&seen);
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(data) = line.strip_prefix("data: ") {
                shared.lock().unwrap().take(&serde_json::from_str(data).unwrap());
            }
        }
    });
    seen
}

#[test]
fn real_engine_events_are_shown_at_once_and_match_the_dry_run() {
    let members = ["alpha", "beta", "gamma"].map(|name| Member::new(name, "tiny", ""));
    let settings = "[serve]\npatience = \"0s\"\n";
    let fleet = Fleet::start(&members, settings, |needs| 2 * needs[0] + needs[0] / 2);
    let address = fleet.daemon.address;
    let seen = listen(address);
    for name in ["alpha", "beta", "gamma", "alpha", "gamma", "beta"] {
        let path = format!("/api/what-if?model={name}");
        let status = fleet.daemon.status();
        let number = |name: &str| {
            let models = status["models"].as_array().unwrap().iter();
            models.clone().find(|model| model["name"] == name).unwrap()["id"].as_u64().unwrap()
        };
        let state = |name: &str| {
            let models = status["models"].as_array().unwrap().iter();
            models.clone().find(|model| model["name"] == name).unwrap()["state"].clone()
        };
        if state(name) == "ready" {
            continue;
        }
        let stated = http::get(address, &path).json();
        let before = seen.lock().unwrap().stops().len();
        assert_eq!(fleet::chat(address, name).status, 200);
        let foretold: Vec<u64> =
            stated["stops"].as_array().unwrap().iter().map(|name| number(name.as_str().unwrap())).collect();
        until("its stops are shown", || seen.lock().unwrap().stops().len() >= before + foretold.len());
        assert_eq!(seen.lock().unwrap().stops()[before..], foretold, "{name}: {stated}");
        assert_eq!(stated["fits"] == "now", foretold.is_empty(), "{stated}");
    }
    // A context that no card holds is refused by the dry run as a load would be.
    let never = http::get(address, "/api/what-if?model=alpha&context=67108864").json();
    assert_eq!(never["fits"], "never", "{never}");
    let engine = fleet.daemon.engines()[0];
    std::process::Command::new("kill").args(["-9", &engine.to_string()]).status().unwrap();
    until("its end is shown", || seen.lock().unwrap().soonest.contains_key("failed"));
    let seen = seen.lock().unwrap();
    for kind in ["load", "ready", "stop", "gone", "failed"] {
        assert!(seen.soonest[kind] < WITHIN, "{kind} after {} s", seen.soonest[kind]);
    }
}
