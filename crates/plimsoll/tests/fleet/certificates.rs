//! Tests of a fleet whose hosts have certificates: a new host joins by one command.
//!
//! Any other client of the port for hosts is refused and reported, and harms no host.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use plimsoll_etcd::{Etcd, StoreAccess, StoreAddress};
use plimsoll_fleet::{FleetKey, KeySpace, Transaction, TransactionOutcome, Write};
use serde_json::Value;
use tempfile::TempDir;

use super::intruder::{Shown, Visit};
use super::rig::dump_of;
use super::server::Cluster;
use crate::daemon::{Daemon, Setup, until};
use crate::http::{self, Answer};

/// Three hosts; the first has the authority and no room for a model.
pub(crate) struct Certified {
    pub(crate) hosts: Vec<Daemon>,
    /// The ports for hosts.
    pub(crate) ports: Vec<SocketAddr>,
    pub(crate) store: Cluster,
    folder: TempDir,
    /// Further lines under `[fleet]`.
    lines: &'static str,
}

/// An address that a host can bind later.
///
/// Its loopback address belongs to this process alone, so no other test or engine takes the port meanwhile.
pub(super) fn free_address() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    TcpListener::bind((Ipv4Addr::new(127, high + 1, middle, low), 0)).unwrap().local_addr().unwrap()
}

pub(crate) fn plimsoll(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("fleet").args(words).output().unwrap()
}

pub(crate) fn stated(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

impl Certified {
    pub(crate) fn start(lifetime: &str) -> Self {
        Self::with_lines(lifetime, "")
    }

    pub(crate) fn with_lines(lifetime: &str, lines: &'static str) -> Self {
        let (store, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
        let mut fleet = Self { hosts: Vec::new(), ports: vec![free_address()], store, folder, lines };
        let (port, identity) = (fleet.ports[0].to_string(), fleet.identity(0));
        let address = fleet.store.address();
        let (_, name) = address.rsplit_once('/').unwrap();
        let more = ["--lifetime", lifetime, "--folder", shown(&identity)];
        let begun = [&["init", &port, "--host", "h0", "--fleet", name][..], &more].concat();
        assert!(plimsoll(&begun).status.success());
        fleet.serve(0, "64MiB");
        for number in 1..3 {
            let invitation = fleet.invite("1h");
            let joined = fleet.join(number, &invitation);
            assert!(joined.status.success(), "{}", stated(&joined));
            fleet.serve(number, "1GiB");
        }
        fleet
    }

    pub(crate) fn identity(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("h{number}"))
    }

    pub(crate) fn invite(&self, valid: &str) -> String {
        let output = plimsoll(&["invite", "--for", valid, "--folder", shown(&self.identity(0))]);
        assert!(output.status.success(), "{}", stated(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn join(&mut self, number: usize, invitation: &str) -> Output {
        self.join_as(number, &format!("h{number}"), invitation)
    }

    pub(crate) fn join_as(&mut self, number: usize, host: &str, invitation: &str) -> Output {
        let port = free_address();
        self.ports.truncate(number);
        self.ports.push(port);
        let (port, identity) = (port.to_string(), self.identity(number));
        plimsoll(&["join", invitation, "--host", host, "--address", &port, "--folder", shown(&identity)])
    }

    fn serve(&mut self, number: usize, memory: &str) {
        let table = format!("[fleet]\nidentity = \"{}\"\n{}\n", shown(&self.identity(number)), self.lines);
        let host = Setup::with_cards(&[&format!("name=host,kind=host,total={memory}")])
            .model("one", "100MiB", "", "")
            .model("two", "100MiB", "", "")
            .config("[serve]\napi-keys = [\"a-client\"]\n")
            .config(&table)
            .argument("--fleet")
            .argument(&self.store.address())
            .start();
        self.hosts.push(host);
    }

    /// The answer to a chat that a client with its key asks for.
    pub(crate) fn ask(&self, host: usize, body: &Value) -> Answer {
        let key = "Authorization: Bearer a-client\r\n";
        let path = "/v1/chat/completions";
        http::read(&http::open_with(self.hosts[host].address, "POST", path, key, Some(body)))
    }

    /// Asks until there is an answer; gives the host's name.
    pub(crate) fn answered(&self, host: usize) -> String {
        self.answered_for(host, "one")
    }

    pub(crate) fn answered_for(&self, host: usize, model: &str) -> String {
        let mut answer = Answer::default();
        until("an answer", || {
            answer = self.ask(host, &http::chat_body(model, false));
            answer.status == 200
        });
        answer.header("plimsoll-host").unwrap_or("itself").to_owned()
    }

    fn visit(&self, host: usize, as_whom: Shown<'_>) -> Visit {
        Visit::of(self.ports[host], as_whom)
    }

    pub(crate) fn file(&self, number: usize) -> Value {
        serde_json::from_slice(&std::fs::read(self.identity(number).join("host.json")).unwrap()).unwrap()
    }
}

pub(crate) fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A request as a host passes it on.
fn hop(seat: &str) -> String {
    let body = http::chat_body("one", false).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nplimsoll-hop: 1\r\nplimsoll-seat: {seat}\r\n\
            plimsoll-model: one\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

const CLIENT: &str =
    "GET /v1/models HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a-client\r\nConnection: close\r\n\r\n";

#[test]
fn peers_without_a_fleet_certificate_are_refused_and_logged() {
    let fleet = Certified::start("90d");
    let owner = if fleet.answered(0) == "h1" { 1 } else { 2 };
    let other = 3 - owner;
    assert_eq!(fleet.answered(owner), "itself");
    // A client's key, on plain HTTP and in TLS, with and without a place for strangers.
    let plain =
        http::open_with(fleet.ports[owner], "GET", "/v1/models", "Authorization: Bearer a-client\r\n", None);
    assert_eq!(http::read(&plain).status, 0);
    assert_eq!(fleet.visit(owner, Shown::Nothing).ask(CLIENT), Err(()));
    let (status, text) = fleet.visit(0, Shown::Nothing).ask(CLIENT).unwrap();
    assert!(status == 401 && text.contains("no_certificate"), "{text}");
    let (status, _) = fleet.visit(0, Shown::Nothing).ask(&hop("x:1")).unwrap();
    assert_eq!(status, 401);
    // A host's certificate admits no client's request, and no old token.
    let host = fleet.identity(other);
    let (status, text) = fleet.visit(owner, Shown::Host(&host)).ask(CLIENT).unwrap();
    assert!(status == 403 && text.contains("not_for_clients"), "{text}");
    let (status, text) = fleet.visit(owner, Shown::Host(&host)).ask(&hop("another-life:1")).unwrap();
    assert!(status == 503 && text.contains("stale_seat"), "{text}");
    // Passing on at the port of clients is for no one, whatever key is shown.
    let lines = "plimsoll-hop: 1\r\nplimsoll-seat: x:1\r\nAuthorization: Bearer a-client\r\n";
    let body = http::chat_body("one", false);
    let wrong =
        http::open_with(fleet.hosts[owner].address, "POST", "/v1/chat/completions", lines, Some(&body));
    assert_eq!(http::read(&wrong).json()["error"]["code"], "wrong_port");
    // A host of another fleet, and certificates beyond all measure.
    let foreign = tempfile::tempdir().unwrap();
    let address = fleet.store.address();
    let (_, name) = address.rsplit_once('/').unwrap();
    let begun = ["init", "127.0.0.1:1", "--host", "h1", "--fleet", name, "--folder", shown(foreign.path())];
    assert!(plimsoll(&begun).status.success());
    assert_eq!(fleet.visit(owner, Shown::Host(foreign.path())).ask(&hop("x:1")), Err(()));
    assert_eq!(fleet.visit(owner, Shown::Huge(&host)).ask(&hop("x:1")), Err(()));
    until("the refusals are told", || fleet.hosts[owner].talk().contains("is refused"));
    // All that while nothing has changed for the hosts.
    assert_eq!(fleet.answered(0), format!("h{owner}"));
    let metrics = "GET";
    let page = http::read(&http::open_with(
        fleet.hosts[owner].address,
        metrics,
        "/metrics",
        "Authorization: Bearer a-client\r\n",
        None,
    ));
    assert!(!page.text().contains("plimsoll_fleet_refused_total 0\n"), "{}", page.text());
    no_secret_in_the_store(&fleet);
}

fn no_secret_in_the_store(fleet: &Certified) {
    let dump = dump_of(&fleet.store);
    assert!(dump.contains("seats/one/0"), "{dump}");
    let authority = std::fs::read(fleet.identity(0).join("authority/authority.json")).unwrap();
    let authority: Value = serde_json::from_slice(&authority).unwrap();
    let mut secrets = vec!["a-client".to_owned(), "fake-engine".to_owned()];
    for file in [fleet.file(0), fleet.file(1), fleet.file(2), authority] {
        secrets.extend(["key", "certificate"].map(|field| file[field].as_str().unwrap().to_owned()));
    }
    for secret in secrets {
        assert!(!dump.contains(&secret), "{secret}");
    }
}

#[test]
fn an_invitation_is_good_for_one_host_and_for_its_time() {
    let mut fleet = Certified::start("90d");
    let (invitation, late) = (fleet.invite("1h"), fleet.invite("1s"));
    assert!(fleet.join(3, &invitation).status.success());
    let again = fleet.join(4, &invitation);
    assert!(!again.status.success() && stated(&again).contains("was used before"), "{}", stated(&again));
    std::thread::sleep(Duration::from_secs(2));
    let expired = fleet.join(4, &late);
    assert!(!expired.status.success() && stated(&expired).contains("has expired"), "{}", stated(&expired));
    let taken = fleet.invite("1h");
    let taken = plimsoll(&["join", &taken, "--host", "h1", "--folder", shown(&fleet.identity(9))]);
    assert!(stated(&taken).contains("a host `h1` has a certificate"), "{}", stated(&taken));
    let garbage = plimsoll(&["join", "plimsoll-join-1.e30", "--folder", shown(&fleet.identity(9))]);
    assert_eq!(garbage.status.code(), Some(2), "{}", stated(&garbage));
    assert!(!fleet.identity(9).join("host.json").exists() && !fleet.identity(4).join("host.json").exists());
    // Only the host that began the fleet invites.
    let elsewhere = plimsoll(&["invite", "--folder", shown(&fleet.identity(1))]);
    assert!(stated(&elsewhere).contains("host 'h0'"), "{}", stated(&elsewhere));
    fleet.hosts[0].reported("no certificate for 'h4'");
}

#[test]
fn a_revoked_host_is_left_by_all_others() {
    let fleet = Certified::start("90d");
    let owner = if fleet.answered(0) == "h1" { 1 } else { 2 };
    let other = 3 - owner;
    let (name, store) = (format!("h{owner}"), fleet.store.address());
    let serial = fleet.file(owner)["serial"].as_str().unwrap().to_owned();
    let folder = fleet.identity(0);
    let revoked = plimsoll(&["revoke", &name, "--store", &store, "--folder", shown(&folder)]);
    assert!(stated(&revoked).contains("revoked"), "{}", stated(&revoked));
    fleet
        .hosts
        .iter()
        .for_each(|host| host.reported(&format!("certificate {serial} of the fleet is no longer valid")));
    assert_eq!(fleet.visit(other, Shown::Host(&fleet.identity(owner))).ask(&hop("x:1")), Err(()));
    // Its models are answered elsewhere, and it is no member any more.
    until("the model moves", || fleet.answered(0) == format!("h{other}"));
    assert!(dump_of(&fleet.store).contains(&format!("revoked/{serial}")));
    fleet.hosts[other].reported("is refused: its certificate is revoked");
    let unknown = plimsoll(&["revoke", "h9", "--store", &store, "--folder", shown(&folder)]);
    assert!(stated(&unknown).contains("no valid certificate for host `h9`"), "{}", stated(&unknown));
}

#[test]
fn a_host_that_lies_about_its_cards_and_its_name_gets_no_request() {
    let fleet = Certified::start("90d");
    let owner = fleet.answered(0);
    let other = if owner == "h1" { "h2" } else { "h1" };
    // It promises a terabyte, at the address of a true host.
    let mut record = Value::Null;
    until("the other host is registered", || {
        let dump = dump_of(&fleet.store);
        let line = dump.lines().find(|line| line.contains(&format!("hosts/{other} ")));
        record =
            line.map_or(Value::Null, |line| serde_json::from_str(line.split_once(' ').unwrap().1).unwrap());
        record.is_object()
    });
    record["incarnation"] = "a-lie".into();
    record["machine"] = "another".into();
    record["capacity"] = (1_u64 << 40).into();
    put(&fleet.store, FleetKey::Host("liar".to_owned()), &record);
    let store = fleet.store.address();
    let moved = plimsoll(&["move", "one", "liar", "--store", &store]);
    assert!(moved.status.success(), "{}", stated(&moved));
    until("the store says that the model is there", || dump_of(&fleet.store).contains("\"host\":\"liar\""));
    let host = fleet.answered(0);
    assert!(host == "h1" || host == "h2", "{host}");
    fleet.hosts[0].reported("host 'liar' is not used for a minute");
    assert!(fleet.hosts.iter().all(|host| host.talk().lines().all(|line| !line.contains("panicked"))));
}

pub(crate) fn put(store: &Cluster, key: FleetKey, record: &Value) {
    let address: StoreAddress = store.address().parse().unwrap();
    let client = Etcd::new(&address, KeySpace::of(&address.fleet).unwrap(), &StoreAccess::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let write = Write::put(key, record.to_string().into_bytes());
    let written =
        runtime.block_on(client.transact(&Transaction { compares: Vec::new(), writes: vec![write] }, 0));
    assert!(matches!(written, TransactionOutcome::Applied(_)), "{written:?}");
}

#[test]
fn certificates_are_renewed_before_they_end() {
    let fleet = Certified::start("20s");
    let first: Vec<Value> = (0..3).map(|number| fleet.file(number)["serial"].clone()).collect();
    let began = Instant::now();
    // Longer than the first certificates are good.
    while began.elapsed() < Duration::from_secs(24) {
        fleet.answered(0);
        std::thread::sleep(Duration::from_millis(200));
    }
    for (number, first) in first.iter().enumerate() {
        assert_ne!(fleet.file(number)["serial"], *first, "h{number}");
        fleet.hosts[number].reported("this host's certificate is renewed");
    }
}

#[test]
fn slow_handshakes_take_no_place_of_a_host() {
    let fleet = Certified::start("90d");
    let owner = if fleet.answered(0) == "h1" { 1 } else { 2 };
    let mut slow: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(fleet.ports[owner]).unwrap()).collect();
    // The first bytes of a handshake, and no more.
    slow.iter_mut().for_each(|slow| drop(slow.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01])));
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(fleet.answered(0), format!("h{owner}"));
    }
    let host = fleet.identity(3 - owner);
    assert_eq!(fleet.visit(owner, Shown::Host(&host)).ask(&hop("x:1")).map(|(status, _)| status), Ok(503));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    fleet.hosts[owner].reported("the TLS handshake took too long");
}
