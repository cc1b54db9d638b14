//! Latency test with fifty daemons that watch one real etcd: the time from the claim of a seat to the routed
//! request.
//!
//! A seat is the fleet's record that a model is loaded on a host.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_etcd::Etcd;
use plimsoll_fleet::{
    Affinity, ClaimGuard, Compare, FleetEffect, FleetEvent, FleetKey, FleetNode, HostRecord, NodeSettings,
    Record, Seat, SeatCause, Transaction, TransactionOutcome, Turn, Write,
};
use tokio::task::{LocalSet, spawn_local};

use super::server::Cluster;
use super::{client, ready};

const DAEMONS: usize = 50;
const SEATS: usize = 40;
/// Pause between two claims: a fleet of fifty hosts has fewer.
const PAUSE: Duration = Duration::from_millis(50);
const BOUND: Duration = Duration::from_millis(20);

fn host() -> HostRecord {
    let text = str::to_owned;
    let (capacity, unseated) = (Bytes::gib(80), Bytes::ZERO);
    let (incarnation, machine, address) = (text("i"), text("m"), text("10.0.0.1:8080"));
    HostRecord { incarnation, machine, address, version: text("1"), capacity, unseated, offers: text("o") }
}

fn node(number: usize) -> FleetNode {
    let name = format!("router-{number}");
    FleetNode::new(NodeSettings {
        life: name.clone(),
        machine: name.clone(),
        address: name.clone(),
        name,
        version: "1".to_owned(),
        capacity: Bytes::ZERO,
        seed: number as u64,
        wait: Duration::from_secs(60),
        watchers: usize::MAX,
    })
}

/// The claim of a model's seat, as a daemon writes it.
fn claim(model: &str) -> Transaction {
    let key = FleetKey::Seat { model: model.to_owned(), number: 0 };
    let (need, evicts) = (Bytes::gib(6), Vec::new());
    let (host, incarnation) = ("a".to_owned(), "i".to_owned());
    let seat = Seat { host, incarnation, need, nonce: model.to_owned(), cause: SeatCause::Wanted, evicts };
    Transaction {
        compares: vec![Compare { guard: ClaimGuard::Seat, key: key.clone(), revision: 0 }],
        writes: vec![
            Write::put(key, Record::new(seat).write()),
            Write::put(FleetKey::Turn("a".to_owned()), Record::new(Turn {}).write()),
        ],
    }
}

/// Begin of each claim, and what each daemon took until it could route to it.
#[derive(Default)]
struct Times {
    begun: Vec<Instant>,
    routed: Vec<Duration>,
}

/// Follows the store as a daemon does, and asks for each model until there is a way to it.
async fn follow(store: Etcd, number: usize, times: Rc<RefCell<Times>>) {
    let (header, records) = store.read().await.unwrap();
    let (mut node, mut effects, began) = (node(number), Vec::new(), Instant::now());
    node.on_event(began.elapsed(), FleetEvent::Read { revision: header.revision, records }, &mut effects);
    let mut watch = store.watch(header.revision + 1).await.unwrap();
    for model in 0..SEATS {
        loop {
            let changes = watch.next().await.unwrap();
            let is_seat = changes.iter().any(|change| matches!(change.key, FleetKey::Seat { .. }));
            node.on_event(began.elapsed(), FleetEvent::Changed(changes), &mut effects);
            effects.clear();
            let wanted = FleetEvent::Wanted {
                request: model as u64,
                model: format!("m{model}"),
                affinity: Affinity::default(),
            };
            node.on_event(began.elapsed(), wanted, &mut effects);
            if effects.iter().any(|effect| matches!(effect, FleetEffect::Forward { .. })) {
                break;
            }
            assert!(!is_seat, "the seat of another model: {effects:?}");
        }
        let mut times = times.borrow_mut();
        let taken = times.begun[model].elapsed();
        times.routed.push(taken);
    }
}

#[allow(clippy::print_stdout, reason = "figures of the run")]
async fn measured(members: usize) -> Duration {
    let cluster = Cluster::start(members);
    let store = client(&cluster.address());
    ready(&store).await;
    let write = Write::put(FleetKey::Host("a".to_owned()), Record::new(host()).write());
    let registered = store.transact(&Transaction { compares: Vec::new(), writes: vec![write] }, 0).await;
    assert!(matches!(registered, TransactionOutcome::Applied(_)));
    let times = Rc::new(RefCell::new(Times::default()));
    let followers: Vec<_> = (0..DAEMONS)
        .map(|number| {
            spawn_local(follow(client(&cluster.address()).beginning_at(number), number, Rc::clone(&times)))
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for model in 0..SEATS {
        times.borrow_mut().begun.push(Instant::now());
        let outcome = store.transact(&claim(&format!("m{model}")), 0).await;
        assert!(matches!(outcome, TransactionOutcome::Applied(_)), "{outcome:?}");
        tokio::time::sleep(PAUSE).await;
    }
    for follower in followers {
        follower.await.unwrap();
    }
    let mut routed = std::mem::take(&mut times.borrow_mut().routed);
    routed.sort();
    assert_eq!(routed.len(), DAEMONS * SEATS);
    let at = |percent: usize| routed[(routed.len() - 1) * percent / 100];
    println!(
        "{DAEMONS} daemons, {members} members: from the claim to a route {:?} (p50), {:?} (p99), {:?} at most",
        at(50),
        at(99),
        at(100)
    );
    at(50)
}

#[tokio::test]
async fn long_fifty_daemons_route_to_a_new_seat_within_20_ms() {
    let median = LocalSet::new().run_until(measured(3)).await;
    assert!(median <= BOUND, "{median:?}");
}
