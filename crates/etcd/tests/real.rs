//! Tests of the client with a real etcd: reads, transactions, leases, watches, lost members, compaction.

mod loads;
mod secured;
#[allow(dead_code)]
mod server;
mod watchers;

use std::time::Duration;

use plimsoll_etcd::{Etcd, LatestRecord, StoreAccess, StoreAddress, StoreError};
use plimsoll_fleet::{
    ClaimGuard, Compare, Drain, FleetKey, FleetView, KeySpace, Record, Transaction, TransactionOutcome, Write,
};
use server::Cluster;

fn client(address: &str) -> Etcd {
    let address: StoreAddress = address.parse().unwrap();
    let keys = KeySpace::of(&address.fleet).unwrap();
    Etcd::new(&address, keys, &StoreAccess::default()).unwrap()
}

/// Waits until the store has a leader.
async fn ready(store: &Etcd) {
    for _ in 0..300 {
        if store.header().await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no store after 30 s");
}

fn drain(host: &str, revision: u64, value: Option<Vec<u8>>) -> Transaction {
    let key = FleetKey::Drain(host.to_owned());
    let compares = vec![Compare { guard: ClaimGuard::Drain, key: key.clone(), revision }];
    Transaction { compares, writes: vec![Write { key, value, leased: false }] }
}

fn record() -> Option<Vec<u8>> {
    Some(Record::new(Drain { leave: true }).write())
}

#[tokio::test]
async fn a_transaction_is_applied_once_and_reported_by_the_watch() {
    let cluster = Cluster::start(1);
    let store = client(&cluster.address());
    ready(&store).await;
    let (header, records) = store.read().await.unwrap();
    assert!(records.is_empty());
    let mut watch = store.watch(header.revision + 1).await.unwrap();
    let TransactionOutcome::Applied(first) = store.transact(&drain("a", 0, record()), 0).await else {
        panic!("not applied")
    };
    assert_eq!(store.transact(&drain("a", 0, record()), 0).await, TransactionOutcome::Conflict);
    assert!(matches!(store.transact(&drain("a", first, None), 0).await, TransactionOutcome::Applied(_)));
    let mut view = FleetView::at(header.revision, records);
    for (revision, drains) in [(first, 1), (first + 1, 0)] {
        watch.next().await.unwrap().iter().for_each(|change| view.apply(change));
        assert_eq!((view.revision, view.drains.len()), (revision, drains));
    }
}

#[tokio::test]
async fn more_records_than_a_page_are_read_at_one_revision() {
    let cluster = Cluster::start(1);
    let store = client(&cluster.address());
    ready(&store).await;
    for batch in 0..11 {
        let write = |n: usize| Write::put(FleetKey::Drain(format!("h{batch}-{n}")), record().unwrap());
        let transaction = Transaction { compares: Vec::new(), writes: (0..100).map(write).collect() };
        assert!(matches!(store.transact(&transaction, 0).await, TransactionOutcome::Applied(_)));
    }
    let (header, records) = store.read().await.unwrap();
    assert_eq!((header.revision, records.len()), (12, 1100));
}

#[tokio::test]
async fn writes_of_another_fleet_are_none_of_this_one() {
    let cluster = Cluster::start(1);
    let store = client(&cluster.address());
    // A name that begins alike.
    let other = client(&format!("{}s", cluster.address()));
    ready(&store).await;
    assert_eq!(store.latest().await.unwrap(), LatestRecord { revision: 0, records: 0 });
    for host in ["a", "b"] {
        store.transact(&drain(host, 0, record()), 0).await;
    }
    let latest = LatestRecord { revision: 3, records: 2 };
    assert_eq!(store.latest().await.unwrap(), latest);
    other.transact(&drain("a", 0, record()), 0).await;
    assert_eq!(store.latest().await.unwrap(), latest, "the store's revision is another fleet's");
    assert_eq!(store.header().await.unwrap().revision, 4);
    // A deletion shows in the number.
    store.transact(&drain("a", 2, None), 0).await;
    assert_eq!(store.latest().await.unwrap(), LatestRecord { records: 1, ..latest });
}

#[tokio::test]
async fn leased_keys_are_deleted_with_their_lease() {
    let cluster = Cluster::start(1);
    let store = client(&cluster.address());
    ready(&store).await;
    let lease = store.grant(Duration::from_secs(60)).await.unwrap();
    assert_eq!(store.keep_alive(lease).await.unwrap().seconds, 60);
    let write = Write::put(FleetKey::Drain("a".to_owned()), record().unwrap()).leased();
    let transaction = Transaction { compares: Vec::new(), writes: vec![write] };
    assert!(matches!(store.transact(&transaction, lease).await, TransactionOutcome::Applied(_)));
    store.revoke(lease).await.unwrap();
    assert!(store.read().await.unwrap().1.is_empty());
    assert_eq!(store.keep_alive(lease).await.unwrap().seconds, 0, "it has ended");
    // A write with a lease that has ended is an error, and changes nothing.
    assert_eq!(store.transact(&transaction, lease).await, TransactionOutcome::Unknown);
    assert!(store.read().await.unwrap().1.is_empty());
}

#[tokio::test]
async fn three_members_answer_with_one_lost_and_are_silent_with_two() {
    let mut cluster = Cluster::start(3);
    let store = client(&cluster.address());
    ready(&store).await;
    let from = store.header().await.unwrap().revision + 1;
    cluster.members[0].kill();
    ready(&store).await;
    write_in_the_end(&store).await;
    // A watch that begins again where it ended misses nothing.
    let changes = store.watch(from).await.unwrap().next().await.unwrap();
    assert_eq!(changes.len(), 1);
    cluster.members[1].kill();
    assert!(store.read().await.is_err(), "one of three is no quorum");
    assert_eq!(store.transact(&drain("b", 0, record()), 0).await, TransactionOutcome::Unknown);
    cluster.members[0].restart();
    ready(&store).await;
    let hosts = store.read().await.unwrap().1.len();
    assert!((1..=2).contains(&hosts), "what was unknown may have been applied since: {hosts}");
}

#[tokio::test]
async fn a_member_that_is_stopped_is_passed_over() {
    let cluster = Cluster::start(3);
    let store = client(&cluster.address());
    ready(&store).await;
    cluster.members[0].signal("STOP");
    ready(&store).await;
    let written = write_in_the_end(&store).await;
    assert_eq!(store.latest().await.unwrap(), LatestRecord { revision: written, records: 1 });
    cluster.members[0].signal("CONT");
}

/// Writes one record, again where the fate of the write is unknown, and returns its revision.
///
/// A member that answers a read may lose its leader before the write, and then no answer comes in time.
/// Such a write may be applied later, and the next one then conflicts with it.
async fn write_in_the_end(store: &Etcd) -> u64 {
    for _ in 0..30 {
        match store.transact(&drain("a", 0, record()), 0).await {
            TransactionOutcome::Applied(revision) => return revision,
            TransactionOutcome::Conflict => return store.latest().await.unwrap().revision,
            TransactionOutcome::Unknown => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("no write was applied")
}

#[tokio::test]
async fn a_restored_backup_counts_backwards() {
    let mut cluster = Cluster::start(1);
    let store = client(&cluster.address());
    ready(&store).await;
    store.transact(&drain("a", 0, record()), 0).await;
    cluster.back_up();
    ready(&store).await;
    store.transact(&drain("b", 0, record()), 0).await;
    let before = store.header().await.unwrap();
    cluster.restore();
    ready(&store).await;
    assert!(store.header().await.unwrap().is_before(&before));
    assert_eq!(store.read().await.unwrap().1.len(), 1);
}

#[tokio::test]
async fn a_watch_of_a_compacted_history_says_so() {
    let cluster = Cluster::start(1);
    let store = client(&cluster.address());
    ready(&store).await;
    for host in ["a", "b", "c"] {
        store.transact(&drain(host, 0, record()), 0).await;
    }
    let revision = store.header().await.unwrap().revision;
    compact(&cluster.members[0].address, revision).await;
    let end = store.watch(2).await.unwrap().next().await;
    assert!(matches!(end, Err(StoreError::Compacted { revision: at }) if at == revision), "{end:?}");
}

async fn compact(member: &str, revision: u64) {
    let answer = http(member, "/v3/kv/compaction", &format!("{{\"revision\":\"{revision}\"}}")).await;
    assert!(answer.contains(" 200 OK"), "{answer}");
}

async fn http(member: &str, path: &str, body: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(member).await.unwrap();
    let head = format!("POST {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}
