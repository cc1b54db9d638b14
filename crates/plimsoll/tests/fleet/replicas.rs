//! Tests of several hosts for one model: a second host under load, and conversations that stay on their host.
//!
//! A conversation stays where the engine's slots already hold its prompt.

use std::collections::BTreeSet;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use super::rig::Fleet;
use crate::daemon::until;
use crate::http;

fn hosts_with_engines(fleet: &Fleet) -> usize {
    fleet.hosts.iter().filter(|host| !host.engines().is_empty()).count()
}

/// Streams of four seconds, one after the other in a short time, through the host that holds no model.
fn crowd(fleet: &Fleet, streams: u64) -> BTreeSet<String> {
    let address = fleet.hosts[0].address;
    let streams: Vec<JoinHandle<http::Answer>> = (0..streams)
        .map(|number| {
            spawn(move || {
                sleep(Duration::from_millis(150 * number));
                http::chat_stream(address, "one")
            })
        })
        .collect();
    let answers = streams.into_iter().map(|stream| stream.join().unwrap());
    let host = |answer: http::Answer| {
        assert!(answer.whole && answer.status == 200, "{}", answer.text());
        answer.header("plimsoll-host").expect("another host answers").to_owned()
    };
    answers.map(host).collect()
}

#[test]
fn a_crowd_is_shared_by_two_hosts_and_a_conversation_stays_with_one() {
    let fleet = Fleet::with("64MiB", "events=40 event_ms=100", "replicas = 2");
    fleet.ask(0, "one");
    assert_eq!(hosts_with_engines(&fleet), 1, "one host is enough for one request");
    let hosts = crowd(&fleet, 14);
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    assert_eq!(hosts_with_engines(&fleet), 2);
    // One at a time, all with one prompt.
    let own: BTreeSet<String> =
        (0..4).map(|_| fleet.ask(0, "one").header("plimsoll-host").unwrap().to_owned()).collect();
    assert_eq!(own.len(), 1, "a prompt stays with its host: {own:?}");
    // The host that is left serves when the other one dies, without waiting for a lease.
    let dead = if own.contains("h1") { 1 } else { 2 };
    fleet.hosts[dead].signal("KILL");
    until("the other host answers", || http::chat(fleet.hosts[0].address, "one").status == 200);
    let other = http::chat(fleet.hosts[0].address, "one");
    assert_eq!(other.header("plimsoll-host"), Some(&*format!("h{}", 3 - dead)));
}

#[test]
fn without_replicas_a_crowd_stays_on_one_host() {
    let fleet = Fleet::with("64MiB", "events=40 event_ms=100", "");
    fleet.ask(0, "one");
    assert_eq!(crowd(&fleet, 10).len(), 1);
    assert_eq!(hosts_with_engines(&fleet), 1);
}
