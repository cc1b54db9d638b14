//! Failover tests of a fleet, with time limits: a dead host, and a long outage of the fleet's store (etcd).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use super::rig::{Fleet, operator};
use super::server::Member;
use crate::http;

/// A host's lease, the load time of the fake engine, and what is beyond both.
const LEASE: Duration = Duration::from_secs(10);
const LOAD: Duration = Duration::from_millis(500);
const MORE: Duration = Duration::from_secs(2);
/// A stream of 300 events, one each 100 ms: longer than the failover.
const SCRIPT: &str = "load_ms=500 events=300 event_ms=100";
const EVENTS: usize = 300;
/// Time after the store's return in which all is as before.
const WHOLE: Duration = Duration::from_secs(10);

#[test]
#[allow(clippy::print_stdout, reason = "figures of the run")]
fn a_dead_host_costs_its_models_a_lease_and_a_load_and_other_streams_no_event() {
    let fleet = Fleet::with("64MiB", SCRIPT, "");
    let host = fleet.ask(0, "one").header("plimsoll-host").unwrap().to_owned();
    let (owner, other) = if host == "h1" { (1, 2) } else { (2, 1) };
    operator(&fleet, &["move", "two", &format!("h{other}")]);
    fleet.ask(0, "two");
    // Streams of the other host: its own, and one through each kind of daemon that lives on.
    let streams: Vec<JoinHandle<http::Answer>> = [0, other, 0, other]
        .map(|at| {
            let address = fleet.hosts[at].address;
            spawn(move || http::chat_stream(address, "two"))
        })
        .into();
    sleep(Duration::from_secs(1));
    let (killed, before) = (Instant::now(), leaders_since_the_start(&fleet));
    fleet.hosts[owner].signal("KILL");
    let answer = fleet.ask(0, "one");
    let (taken, changes) = (killed.elapsed(), leaders_since_the_start(&fleet) - before);
    assert_eq!(answer.header("plimsoll-host"), Some(&*format!("h{other}")));
    println!(
        "a model of a dead host is answered elsewhere after {taken:?}, with {changes} changes of the store's leader"
    );
    assert!(taken <= LEASE * (1 + changes) + LOAD + MORE, "{taken:?}");
    for stream in streams {
        let answer = stream.join().unwrap();
        let events = answer.events();
        assert!(answer.whole && events.last().is_some_and(|last| last == "[DONE]"), "{events:?}");
        assert!(events.len() >= EVENTS, "{} of {EVENTS} events", events.len());
        assert!(!events.iter().any(|event| event.contains("\"error\"")));
    }
}

/// Leaders that a member has seen. Each one begins all leases anew.
fn leaders_since_the_start(fleet: &Fleet) -> u32 {
    metric(fleet, "etcd_server_leader_changes_seen_total").round().to_string().parse().unwrap()
}

/// A figure of the store's first member.
fn metric(fleet: &Fleet, name: &str) -> f64 {
    let page = http::get(fleet.store.members[0].address.parse().unwrap(), "/metrics").text();
    let line = page.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// A program that has taken the address of a dead host: it answers all with 200, first without a host's name,
/// then with the name of another one. Gives the number of its answers.
fn impostor(address: SocketAddr, name: String) -> Arc<AtomicUsize> {
    let (listener, answers) = (TcpListener::bind(address).unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&answers);
    spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 16 * 1024];
            let _ = stream.read(&mut request);
            let number = count.fetch_add(1, Ordering::Relaxed);
            let line = if number % 2 == 0 { String::new() } else { format!("plimsoll-host: {name}\r\n") };
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\n{line}content-length: 6\r\nconnection: close\r\n\r\nstolen"
            );
        }
    });
    answers
}

#[test]
fn the_answer_of_another_program_at_a_dead_hosts_address_reaches_no_client() {
    let mut fleet = Fleet::start();
    let host = fleet.ask(0, "one").header("plimsoll-host").unwrap().to_owned();
    let (owner, other) = if host == "h1" { (1, "h2") } else { (2, "h1") };
    let address = fleet.hosts[owner].address;
    fleet.hosts[owner].signal("KILL");
    fleet.hosts[owner].wait();
    let requested = impostor(address, other.to_owned());
    // It asks until the lease has ended, and takes nothing but a refusal or the answer of a host.
    let answer = fleet.ask(0, "one");
    assert_eq!(answer.header("plimsoll-host"), Some(other));
    assert!(answer.json()["choices"].is_array(), "{}", answer.text());
    assert!(requested.load(Ordering::Relaxed) >= 2, "both answers were given");
}

/// Asks for a loaded model all the time, through one daemon; gives the answers, or what was no answer.
fn asks_on(address: SocketAddr, over: Arc<AtomicBool>) -> JoinHandle<Result<u64, String>> {
    spawn(move || {
        let mut answers = 0;
        while !over.load(Ordering::Relaxed) {
            let answer = http::chat(address, "one");
            if answer.status != 200 || !answer.whole {
                return Err(format!("{} {} after {answers} answers", answer.status, answer.text()));
            }
            answers += 1;
            sleep(Duration::from_millis(50));
        }
        Ok(answers)
    })
}

#[allow(clippy::print_stdout, reason = "figures of the run")]
fn outlives_a_silence(silence: Duration) {
    let mut fleet = Fleet::with("64MiB", "load_ms=500", "");
    fleet.ask(0, "one");
    let over = Arc::new(AtomicBool::new(false));
    let asking: Vec<_> = fleet.hosts.iter().map(|host| asks_on(host.address, Arc::clone(&over))).collect();
    fleet.store.members.iter_mut().for_each(Member::kill);
    let (gone, mut reported) = (Instant::now(), 0_u64);
    while gone.elapsed() < silence {
        let refused = http::chat(fleet.hosts[usize::try_from(reported % 3).unwrap()].address, "two");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.json()["error"]["code"], "store_unreachable", "{}", refused.text());
        reported += 1;
        sleep(Duration::from_millis(300));
    }
    fleet.store.members.iter_mut().for_each(Member::restart);
    let back = Instant::now();
    for host in 0..fleet.hosts.len() {
        fleet.ask(host, "two");
        fleet.ask(host, "one");
    }
    let whole = back.elapsed();
    over.store(true, Ordering::Relaxed);
    let mut answers = 0;
    for asking in asking {
        answers += asking.join().unwrap().unwrap_or_else(|lost| panic!("a request is lost: {lost}"));
    }
    println!(
        "the store was gone for {silence:?}: {answers} requests for the loaded model answered and none lost, {reported} others \
        told why; whole again {whole:?} after its return"
    );
    assert!(whole <= WHOLE, "{whole:?}");
}

#[test]
fn a_store_that_is_gone_for_longer_than_a_lease_loses_no_request_for_a_loaded_model() {
    // Leases last 10 s.
    outlives_a_silence(Duration::from_secs(20));
}

#[test]
fn long_silence_of_the_store() {
    outlives_a_silence(Duration::from_secs(600));
}

#[test]
fn idle_models_stay_while_the_store_is_silent_and_leave_when_it_is_back() {
    let mut fleet = Fleet::with("64MiB", "", "ttl = \"6s\"");
    let host = fleet.ask(0, "one").header("plimsoll-host").unwrap().to_owned();
    let owner = if host == "h1" { 1 } else { 2 };
    fleet.store.members.iter_mut().for_each(Member::kill);
    crate::daemon::until("the silence is noticed", || fleet.hosts[owner].talk().contains("does not answer"));
    // Longer than the time to live.
    sleep(Duration::from_secs(9));
    assert_eq!(fleet.hosts[owner].engines().len(), 1, "an idle model left while the store was silent");
    fleet.store.members.iter_mut().for_each(Member::restart);
    crate::daemon::until("the idle model leaves", || fleet.hosts[owner].engines().is_empty());
}

/// Writes of the store for a fleet in which nothing happens but renewals of leases.
#[test]
#[allow(clippy::print_stdout, reason = "figures of the run")]
fn a_fleet_at_rest_hardly_writes_to_its_store() {
    let fleet = Fleet::with("64MiB", "", "");
    fleet.ask(0, "one");
    sleep(Duration::from_secs(3));
    let written = || metric(&fleet, "etcd_server_proposals_applied_total");
    let (before, revision, time) = (written(), fleet.revision(), Duration::from_secs(20));
    sleep(time);
    let a_host = (written() - before) / time.as_secs_f64() / 3.0;
    println!(
        "a fleet at rest: {a_host:.3} proposals a second and host, {} revisions",
        fleet.revision() - revision
    );
    assert!(a_host <= 0.4, "{a_host}");
    assert_eq!(fleet.revision(), revision, "nothing is written for news that are none");
}
