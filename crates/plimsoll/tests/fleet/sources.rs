//! Tests of a fleet in which one host watches the store (etcd) and sends its records and changes to the
//! others.
//!
//! Large fleets work this way, so that not every host has to watch the store.

use std::time::{Duration, Instant};

use plimsoll_fleet::{NewsSource, source};

use super::rig::{Fleet, KEY, header, operator, view};
use super::server::{Cluster, Member};
use crate::daemon::{Daemon, until};
use crate::http;

fn start() -> Fleet {
    let fleet = Fleet::with_lines("64MiB", ("", ""), "watchers = 1");
    fleet.ask(0, "one");
    until("one host watches the store", || watches(&fleet) == 1);
    fleet
}

fn watches(fleet: &Fleet) -> u64 {
    watches_of(&fleet.store)
}

/// Watches that the members of the store have.
pub(crate) fn watches_of(store: &Cluster) -> u64 {
    sum_of(store, |line| line.starts_with("etcd_debugging_mvcc_watcher_total"))
}

/// Sum of a figure of the store's members.
fn sum_of(store: &Cluster, is_it: fn(&str) -> bool) -> u64 {
    let of_member = |member: &Member| -> u64 {
        let page = http::get(member.address.parse().unwrap(), "/metrics").text();
        let line = page.lines().find(|line| is_it(line));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a member counts it")
    };
    store.members.iter().map(of_member).sum()
}

/// The host that watches the store.
fn root(fleet: &Fleet) -> usize {
    let view = view(&fleet.store).unwrap();
    let is_root = |at: &usize| source(&view, &format!("h{at}"), 1, 0, 0) == NewsSource::Store;
    (0..fleet.hosts.len()).find(is_root).unwrap()
}

fn talk(fleet: &Fleet) -> String {
    fleet.hosts.iter().map(Daemon::talk).collect()
}

#[test]
fn hosts_that_do_not_watch_the_store_learn_of_every_move_and_drain() {
    let fleet = start();
    for (from, to) in [("h1", "h2"), ("h2", "h1"), ("h1", "h2")] {
        operator(&fleet, &["move", "one", to]);
        let to_number = if to == "h1" { 1 } else { 2 };
        for host in 0..3 {
            let own = host == to_number;
            until("each host knows of the move", || {
                let answer = http::chat(fleet.hosts[host].address, "one");
                let other = answer.header("plimsoll-host").map(str::to_owned);
                answer.status == 200 && other.as_deref() == (!own).then_some(to)
            });
        }
        operator(&fleet, &["cordon", from]);
        operator(&fleet, &["uncordon", from]);
    }
    assert_eq!(watches(&fleet), 1, "{}", talk(&fleet));
}

#[test]
fn the_others_go_on_when_the_host_that_reports_them_dies() {
    let mut fleet = start();
    let root = root(&fleet);
    let left: Vec<usize> = (0..3).filter(|host| *host != root).collect();
    fleet.hosts[root].signal("KILL");
    fleet.hosts[root].wait();
    // Of two that are left one may have no room at all.
    for host in &left {
        fleet.ask(*host, "two");
    }
    until("one host watches the store again", || watches(&fleet) == 1);
    let big: Vec<&usize> = left.iter().filter(|host| **host != 0).collect();
    if let [first, second] = big[..] {
        for to in [first, second, first] {
            operator(&fleet, &["move", "two", &format!("h{to}")]);
            let from = if to == first { second } else { first };
            until("the move is told", || {
                let answer = http::chat(fleet.hosts[*from].address, "two");
                answer.header("plimsoll-host") == Some(&*format!("h{to}"))
            });
        }
    }
    assert!(!talk(&fleet).contains("panicked"));
}

#[test]
fn a_silent_and_a_restored_store_are_noticed_by_hosts_that_do_not_watch_it() {
    let mut fleet = start();
    fleet.store.back_up();
    fleet.store.members.iter_mut().for_each(Member::kill);
    for host in &fleet.hosts {
        until("the silence is noticed", || {
            let refused = http::chat(host.address, "two");
            refused.status == 503 && refused.json()["error"]["code"] == "store_unreachable"
        });
        assert_eq!(http::chat(host.address, "one").status, 200, "what is loaded is served");
    }
    fleet.store.members.iter_mut().for_each(Member::restart);
    fleet.ask(0, "two");
    let former = fleet.seat("two");
    fleet.store.restore();
    // One that asks when the store has passed what it had seen reads all anew as well.
    until("the restored store is noticed", || talk(&fleet).contains("was restored from a backup"));
    for host in 0..3 {
        fleet.ask(host, "one");
        fleet.ask(host, "two");
    }
    assert_ne!(fleet.seat("two"), former, "a seat of the lost history is not used again");
    until("one host watches the store again", || watches(&fleet) == 1);
}

/// Key of another fleet in the same store, `/plimsoll/other/1/drains/a`, and a value.
const OTHER: &str = "L3BsaW1zb2xsL290aGVyLzEvZHJhaW5zL2E=";
const VALUE: &str = "YQ==";

#[test]
fn writes_of_another_fleet_let_no_host_read_the_store_anew() {
    let fleet = Fleet::start();
    fleet.ask(0, "one");
    let begun = || sum_of(&fleet.store, |line| line.contains("started_total") && line.contains("\"Watch\""));
    until("each host watches the store", || watches(&fleet) == 3);
    let (before, began, member) = (begun(), Instant::now(), fleet.store.members[0].address.parse().unwrap());
    // Longer than three quiet times, after two of which all was read anew.
    while began.elapsed() < Duration::from_secs(25) {
        let put = serde_json::json!({ "key": OTHER, "value": VALUE });
        assert_eq!(http::post(member, "/v3/kv/put", &put).status, 200);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(begun(), before, "a watch ended and began again");
    assert_eq!(watches(&fleet), 3);
    // And news of its own fleet reach each host.
    operator(&fleet, &["cordon", "h1"]);
    operator(&fleet, &["move", "one", "h2"]);
    for host in 0..2 {
        until("each host knows of the move", || {
            http::chat(fleet.hosts[host].address, "one").header("plimsoll-host") == Some("h2")
        });
    }
}

#[test]
fn a_stranger_is_sent_no_news() {
    let fleet = start();
    let ask = |key: &str| header(fleet.hosts[1].address, &[("plimsoll-hop", "news"), ("authorization", key)]);
    for wrong in ["", "Bearer ", "Bearer guess"] {
        let answer = ask(wrong);
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (401, Some("invalid_fleet_key"))
        );
    }
    assert_ne!(ask(&format!("Bearer {}x", KEY)).status, 200);
}
