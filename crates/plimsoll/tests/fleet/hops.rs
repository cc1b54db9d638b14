//! Tests of large requests that one host of a fleet passes to another: the bytes arrive unchanged.
//!
//! They cover fleets with a shared key, fleets with certificates, and an engine that dies.

use std::process::Command;

use serde_json::{Value, json};

use super::certificates::Certified;
use super::rig::Fleet;
use crate::daemon::Daemon;
use crate::http::{self, Answer};

/// Below and beyond the size from which a body goes on while it arrives.
const LENGTHS: [usize; 5] = [400, 31_000, 33_000, 200_000, 2_000_000];

/// A request with so many bytes of text.
fn long(length: usize) -> Value {
    json!({ "messages": [{ "role": "user", "content": "ship ".repeat(length / 5) }], "model": "one" })
}

/// Asks the first host, which has no room, and the host that answers for it.
fn compare(ask: impl Fn(usize, &Value) -> Answer) {
    let passed = LENGTHS.map(|length| ask(0, &long(length)));
    let host = passed[0].header("plimsoll-host").expect("another host answers").to_owned();
    let owner = if host == "h1" { 1 } else { 2 };
    for (length, passed) in LENGTHS.into_iter().zip(passed) {
        assert_eq!((passed.status, passed.header("plimsoll-host")), (200, Some(&*host)), "{}", passed.text());
        let own = ask(owner, &long(length));
        assert_eq!(passed.json()["usage"], own.json()["usage"], "{length}");
        assert_eq!(own.header("plimsoll-host"), None);
    }
}

#[test]
fn a_request_of_any_length_reaches_the_engine_of_the_other_host_whole() {
    let fleet = Fleet::start();
    fleet.ask(0, "one");
    compare(|host, body| http::post(fleet.hosts[host].address, "/v1/chat/completions", body));
}

#[test]
fn a_request_of_any_length_reaches_it_within_tls() {
    let fleet = Certified::start("1h");
    fleet.answered(0);
    compare(|host, body| fleet.ask(host, body));
}

#[test]
fn a_large_request_to_a_dead_engine_is_sent_again_and_its_client_sees_one_answer() {
    let fleet = Fleet::start();
    fleet.ask(0, "one");
    // Once: a model that dies again and again is held back.
    for pid in fleet.hosts.iter().flat_map(Daemon::engines) {
        assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    }
    let answer = http::post(fleet.hosts[0].address, "/v1/chat/completions", &long(500_000));
    let talk = || fleet.hosts.iter().map(Daemon::talk).collect::<String>();
    assert_eq!(answer.status, 200, "{}\n{}", answer.text(), talk());
    assert!(answer.header("plimsoll-host").is_some());
}
