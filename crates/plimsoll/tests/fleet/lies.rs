//! Tests of fleet records that one host sends to others over TLS, truthfully or falsely, with a valid
//! certificate.

use std::io::Write;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    Drain, FleetKey, FleetView, HostRecord, NewsLine, NewsSource, Record, Revocation, Seat, SeatCause,
    StoreChange, source,
};
use serde_json::json;

use super::certificates::{Certified, plimsoll, put, shown, stated};
use super::liar::{Liar, Lie, Listener, beat, changed, reported, truth};
use super::sources::watches_of;
use crate::daemon::{Daemon, until};

const ONE_WATCHES: &str = "watchers = 1";
/// Longest time for which a lie that is looked at harms: a seat that no request uses is confirmed after ten
/// seconds, and three times.
const BOUND: Duration = Duration::from_secs(40);

fn start() -> Certified {
    let fleet = Certified::with_lines("90d", ONE_WATCHES);
    fleet.answered(0);
    until("one host watches the store", || watches_of(&fleet.store) == 1);
    fleet
}

fn talk(fleet: &Certified) -> String {
    fleet.hosts.iter().map(Daemon::talk).collect()
}

#[test]
fn hosts_with_certificates_learn_of_moves_and_of_a_revoked_one_without_watching_the_store() {
    let fleet = start();
    let store = fleet.store.address();
    for to in [1, 2, 1] {
        let moved = plimsoll(&["move", "one", &format!("h{to}"), "--store", &store]);
        assert!(moved.status.success(), "{}", stated(&moved));
        for host in 0..3 {
            let name = if host == to { "itself".to_owned() } else { format!("h{to}") };
            until("each host knows of the move", || fleet.answered(host) == name);
        }
    }
    assert_eq!(watches_of(&fleet.store), 1, "{}", talk(&fleet));
    let (folder, serial) = (fleet.identity(0), fleet.file(2)["serial"].as_str().unwrap().to_owned());
    let (revoked, began) =
        (plimsoll(&["revoke", "h2", "--store", &store, "--folder", shown(&folder)]), Instant::now());
    assert!(revoked.status.success(), "{}", stated(&revoked));
    for host in [0, 1] {
        fleet.hosts[host].reported(&format!("audit revoke: certificate {serial}"));
    }
    // The store is asked when another host tells of a revocation, and each minute without that.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

fn record_of(address: String) -> HostRecord {
    HostRecord {
        incarnation: "lies".to_owned(),
        machine: "lies".to_owned(),
        address,
        version: "1".to_owned(),
        capacity: Bytes::ZERO,
        unseated: Bytes::ZERO,
        offers: "none".to_owned(),
    }
}

/// A name by which a host is the one that all others ask.
fn name_of_the_first() -> String {
    let is_first = |name: &String| {
        let names = ["h0", "h1", "h2", name].map(str::to_owned);
        let record = |name: String| StoreChange {
            key: FleetKey::Host(name),
            revision: 1,
            value: Some(Record::new(record_of("127.0.0.1:1".to_owned())).write()),
        };
        let view = FleetView::at(1, names.map(record));
        source(&view, name, 1, 0, 0) == NewsSource::Store
    };
    (0..).map(|number| format!("liar{number}")).find(is_first).unwrap()
}

/// A host with a good certificate that all others ask, and that tells them this.
fn with_liar(fleet: &mut Certified, lie: Arc<Lie>) -> Liar {
    let (name, invitation) = (name_of_the_first(), fleet.invite("1h"));
    let joined = fleet.join_as(3, &name, &invitation);
    assert!(joined.status.success(), "{}", stated(&joined));
    let liar = Liar::start(fleet.ports[3], &fleet.identity(3), lie);
    let record = serde_json::from_slice(&Record::new(record_of(fleet.ports[3].to_string())).write()).unwrap();
    put(&fleet.store, FleetKey::Host(name), &record);
    liar
}

/// Ways to tell what is no news of this store; a listener gets one after the other.
const KINDS: usize = 8;

fn no_news(store: &str, number: usize, stream: &mut Listener) -> std::io::Result<()> {
    let (header, records) = truth(store);
    let line = |line: NewsLine| line.write();
    match number % KINDS {
        0 => {
            let other = plimsoll_etcd::StoreHeader { cluster_id: header.cluster_id ^ 1, ..header };
            stream.write_all(&reported(&other, header.revision, records))?;
        }
        1 => stream.write_all(&reported(&header, header.revision + 1000, records))?,
        2 => stream.write_all(&reported(&header, u64::MAX, records))?,
        3 => stream.write_all(b"{\"begin\":{}}\n")?,
        4 => loop {
            stream.write_all(&[b'['; 64 * 1024])?;
        },
        // More records than it says, for ever.
        5 => {
            let (cluster, term, revision) = (header.cluster_id, header.raft_term, header.revision);
            stream.write_all(&line(NewsLine::Begin {
                cluster,
                term,
                revision,
                depth: 0,
                lines: usize::MAX,
            }))?;
            loop {
                stream.write_all(&changed(&records))?;
                sleep(Duration::from_millis(5));
            }
        }
        6 => {
            let (cluster, term, revision) = (header.cluster_id, header.raft_term, header.revision);
            let depth = u32::MAX;
            stream.write_all(&line(NewsLine::Begin { cluster, term, revision, depth, lines: 0 }))?;
        }
        // A beginning without an end.
        _ => {
            stream.write_all(b"{\"begin\"")?;
            stream.flush()?;
            sleep(Duration::from_secs(60));
        }
    }
    stream.flush()
}

#[test]
fn forged_news_is_rejected_and_the_fleet_keeps_serving() {
    let mut fleet = start();
    let store = fleet.store.address();
    let lie = move |number: usize, stream: &mut Listener| no_news(&store, number, stream);
    let liar = with_liar(&mut fleet, Arc::new(lie));
    let engines = engines(&fleet);
    until("each kind of lie is told", || {
        // Meanwhile all is as before.
        (0..3).for_each(|host| drop(fleet.answered(host)));
        liar.reported() >= KINDS
    });
    let began = Instant::now();
    fleet.answered_for(0, "two");
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    check_harmless(&fleet, &engines);
}

fn engines(fleet: &Certified) -> Vec<Vec<u32>> {
    fleet.hosts.iter().map(Daemon::engines).collect()
}

/// No host has begun another life, left the fleet, or unloaded a model.
fn check_harmless(fleet: &Certified, engines: &[Vec<u32>]) {
    let talk = talk(fleet);
    for harm in [
        "was restored from a backup",
        "audit revoke",
        "not a member of the fleet",
        "registered as",
        "panicked",
    ] {
        assert!(!talk.contains(harm), "{harm}: {talk}");
    }
    for (host, before) in fleet.hosts.iter().zip(engines) {
        let now = host.engines();
        assert!(before.iter().all(|engine| now.contains(engine)), "a model was unloaded: {talk}");
    }
}

/// The true records, and then lies about each: the loaded model has no seat, the other one sits where it does
/// not, all hosts are revoked, revisions are those of no store, and nothing more happens.
fn lies(store: &str, serials: &[String], stream: &mut Listener) -> std::io::Result<()> {
    let (header, records) = truth(store);
    let view = FleetView::at(header.revision, records.clone());
    let change = |key, revision, value: Option<Vec<u8>>| StoreChange { key, revision, value };
    let revision = header.revision;
    let mut lies: Vec<StoreChange> = serials
        .iter()
        .map(|serial| {
            let value = Record::new(Revocation { expires: u64::MAX }).write();
            change(FleetKey::Revoked(serial.clone()), revision, Some(value))
        })
        .collect();
    let seat = |model: &str| FleetKey::Seat { model: model.to_owned(), number: 0 };
    lies.push(change(seat("one"), revision, None));
    let owner = view.seat("one").map(|seat| seat.record.body.host.clone()).unwrap_or_default();
    let other = if owner == "h1" { "h2" } else { "h1" };
    let incarnation = view.host(other).unwrap().incarnation.clone();
    let (host, need, nonce) = (other.to_owned(), Bytes::mib(100), "a-lie".to_owned());
    let there = Seat { host, incarnation, need, nonce, cause: SeatCause::Wanted, evicts: Vec::new() };
    lies.push(change(seat("two"), revision, Some(Record::new(there).write())));
    lies.push(change(FleetKey::Turn(owner), u64::MAX, None));
    lies.push(change(
        FleetKey::Drain("h9".to_owned()),
        u64::MAX,
        Some(Record::new(Drain { leave: true }).write()),
    ));
    let mut records = records;
    records.extend(lies.iter().filter(|lie| matches!(lie.key, FleetKey::Revoked(_))).cloned());
    stream.write_all(&reported(&header, revision, records))?;
    stream.write_all(&changed(&lies))?;
    beat(stream, revision)
}

#[test]
fn a_host_that_lies_about_seats_and_certificates_is_left_and_has_harmed_none() {
    let mut fleet = start();
    let serials: Vec<String> =
        (0..3).map(|host| fleet.file(host)["serial"].as_str().unwrap().to_owned()).collect();
    let store = fleet.store.address();
    let lie = move |_: usize, stream: &mut Listener| lies(&store, &serials, stream);
    let engines = engines(&fleet);
    let _liar = with_liar(&mut fleet, Arc::new(lie));
    let (left, began) = ("sent records that the store does not have", Instant::now());
    // The first one asks for a model that sits where it does not, by the lie.
    until("each host leaves the liar", || {
        let _ = fleet.ask(0, &json!({ "model": "two", "messages": [] }));
        fleet.hosts.iter().all(|host| host.talk().contains(left))
    });
    let taken = began.elapsed();
    fleet.answered_for(0, "two");
    (0..3).for_each(|host| drop(fleet.answered(host)));
    assert!(taken < BOUND, "{taken:?}");
    check_harmless(&fleet, &engines);
}

/// Resident memory of a host's process, in KiB.
fn resident(host: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The true records, and then drains of hosts that are none, as fast as they are taken.
fn flood(store: &str, stream: &mut Listener) -> std::io::Result<()> {
    let (header, records) = truth(store);
    stream.write_all(&reported(&header, header.revision, records))?;
    for round in 0.. {
        let drains = (0..256).map(|number| StoreChange {
            key: FleetKey::Drain(format!("no-host-{round}-{number}")),
            revision: header.revision,
            value: Some(Record::new(Drain { leave: false }).write()),
        });
        stream.write_all(&changed(&drains.collect::<Vec<_>>()))?;
    }
    Ok(())
}

#[test]
fn a_host_that_sends_news_without_end_takes_no_memory_and_no_lease() {
    let mut fleet = start();
    let store = fleet.store.address();
    let before: Vec<u64> = fleet.hosts.iter().map(resident).collect();
    let liar = with_liar(&mut fleet, Arc::new(move |_: usize, stream: &mut Listener| flood(&store, stream)));
    until("the flood has begun", || liar.reported() > 0);
    let mut most = 0;
    for _ in 0..15 {
        sleep(Duration::from_secs(1));
        (0..3).for_each(|host| drop(fleet.answered(host)));
        let grown =
            fleet.hosts.iter().zip(&before).map(|(host, before)| resident(host).saturating_sub(*before));
        most = grown.fold(most, u64::max);
    }
    assert!(most < 64 << 10, "{most} KiB");
    assert!(!talk(&fleet).contains("has ended this host's lease"), "{}", talk(&fleet));
}
