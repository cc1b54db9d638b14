//! Load test of one real etcd: as many claims of models as a failing rack causes, and full reads of a large
//! fleet's records.
//!
//! The simulator's store uses these measurements (`crates/fleet/tests/simulator`).

use std::rc::Rc;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_etcd::Etcd;
use plimsoll_fleet::{
    ClaimGuard, Compare, FleetKey, HostState, Record, RunPhase, RunState, Seat, SeatCause, Transaction,
    TransactionOutcome, Turn, Write,
};
use tokio::task::{LocalSet, spawn_local};

use super::server::Cluster;
use super::{client, ready};

/// Claims in a second, as 5 000 models of 500 hosts that die are asked for within ten.
const RATE: u32 = 500;
const CLAIMS: u32 = 2000;
const ROUTERS: usize = 8;
const HOSTS: usize = 1000;
const MODELS_A_HOST: usize = 10;
/// Writes in one transaction of etcd, at most.
const BATCH: usize = 128;

fn model(host: usize, number: usize) -> String {
    format!("vendor/model-{:06}-instruct:q4_k_m", host * MODELS_A_HOST + number)
}

fn seat(host: usize, model: &str) -> Write {
    let (name, life) = (format!("gpu-box-{host:05}"), format!("18a1b2c3d4e5f6a7-{host:x}"));
    let seat = Seat {
        host: name,
        nonce: format!("{life}-0123456789abcdef"),
        incarnation: life,
        need: Bytes::gib(6),
        cause: SeatCause::Wanted,
        evicts: Vec::new(),
    };
    Write::put(FleetKey::Seat { model: model.to_owned(), number: 0 }, Record::new(seat).write())
}

/// Records of one host.
fn records(host: usize) -> impl Iterator<Item = Write> {
    let models = move || (0..MODELS_A_HOST).map(move |number| model(host, number));
    let run = RunState { phase: RunPhase::Ready, idle: true };
    let state = Record::new(HostState { runs: models().map(|model| (model, run)).collect() }).write();
    let name = format!("gpu-box-{host:05}");
    let turn = Write::put(FleetKey::Turn(name.clone()), Record::new(Turn {}).write());
    let first = [Write::put(FleetKey::State(name), state), turn];
    first.into_iter().chain(models().map(move |model| seat(host, &model)))
}

async fn apply(store: &Etcd, compares: Vec<Compare>, writes: Vec<Write>) {
    let outcome = store.transact(&Transaction { compares, writes }, 0).await;
    assert!(matches!(outcome, TransactionOutcome::Applied(_)), "{outcome:?}");
}

fn at(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() - 1) * percent / 100]
}

/// Times of claims that begin at their times, whether or not the former ones have ended.
async fn claims(address: &str) -> Vec<Duration> {
    let routers: Vec<Rc<Etcd>> =
        (0..ROUTERS).map(|number| Rc::new(client(address).beginning_at(number))).collect();
    let began = Instant::now();
    let claims: Vec<_> = (0..CLAIMS)
        .map(|number| {
            let (store, due) = (
                Rc::clone(&routers[number as usize % ROUTERS]),
                began + Duration::from_secs(1) * number / RATE,
            );
            spawn_local(async move {
                tokio::time::sleep_until(due.into()).await;
                let (host, model) = (number as usize % HOSTS, format!("claimed-{number}"));
                let key = FleetKey::Seat { model: model.clone(), number: 0 };
                let compares = vec![Compare { guard: ClaimGuard::Seat, key, revision: 0 }];
                let turn = FleetKey::Turn(format!("gpu-box-{host:05}"));
                apply(
                    &store,
                    compares,
                    vec![seat(host, &model), Write::put(turn, Record::new(Turn {}).write())],
                )
                .await;
                due.elapsed()
            })
        })
        .collect();
    let mut times = Vec::new();
    for claim in claims {
        times.push(claim.await.unwrap());
    }
    times.sort();
    times
}

/// Time of a processor that the members have used.
fn used(cluster: &Cluster) -> Duration {
    let ticks = cluster.members.iter().map(|member| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", member.pid())).unwrap();
        let fields: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|it| it.parse().unwrap())
            .collect();
        fields.iter().sum::<u64>()
    });
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

#[allow(clippy::print_stdout, reason = "figures of the run")]
async fn measured() -> (Duration, Duration) {
    let cluster = Cluster::start(3);
    let store = client(&cluster.address());
    ready(&store).await;
    let records: Vec<Write> = (0..HOSTS).flat_map(records).collect();
    for batch in records.chunks(BATCH) {
        apply(&store, Vec::new(), batch.to_vec()).await;
    }
    let (before, began) = (used(&cluster), Instant::now());
    for _ in 0..10 {
        assert_eq!(store.read().await.unwrap().1.len(), records.len());
    }
    let (reading, cost) = (began.elapsed() / 10, (used(&cluster) - before) / 10);
    println!(
        "{HOSTS} hosts, {} records: a whole reading takes {reading:?}, and {cost:?} of the members' processors",
        records.len()
    );
    let before = used(&cluster);
    let times = claims(&cluster.address()).await;
    let cost = (used(&cluster) - before) / CLAIMS;
    println!(
        "{RATE} claims a second of {ROUTERS} routers, three members: {:?} (p1), {:?} (p10), {:?} (p25), {:?} (p50), {:?} (p75), \
        {:?} (p90), {:?} (p99), {:?} at most; {cost:?} of the members' processors each",
        at(&times, 1),
        at(&times, 10),
        at(&times, 25),
        at(&times, 50),
        at(&times, 75),
        at(&times, 90),
        at(&times, 99),
        at(&times, 100),
    );
    (reading, at(&times, 50))
}

#[tokio::test]
async fn long_a_store_takes_the_claims_of_a_dying_rack_and_is_read_whole() {
    let (reading, claim) = LocalSet::new().run_until(measured()).await;
    assert!(reading < Duration::from_secs(2), "{reading:?}");
    assert!(claim < Duration::from_millis(50), "{claim:?}");
}
