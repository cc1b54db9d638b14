//! Tests of model file copies between hosts: a host without a file copies it from a host that has no room.
//!
//! A host gives files to hosts of its fleet only.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use plimsoll_fleet::{FleetView, HostCopies};

use super::certificates::free_address;
use super::intruder::{Shown, Visit};
use super::rig::{Fleet, KEY, dump_of, header, view};
use super::server::Cluster;
use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http;

const SIZE: usize = 6 << 20;

/// Two hosts with certificates. The first has the files of the model, in two parts, and the second lacks
/// them.
struct Sharing {
    hosts: Vec<Daemon>,
    ports: Vec<SocketAddr>,
    store: Cluster,
    folder: tempfile::TempDir,
}

fn content(part: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..SIZE).map(|at| u8::try_from((at * 7 + usize::from(part)) % 251).unwrap()).collect();
    bytes[..4].copy_from_slice(b"GGUF");
    bytes
}

/// What `plimsoll fleet` prints.
fn plimsoll(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("fleet").args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Sharing {
    fn start(lines: &str) -> Self {
        let (store, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
        let mut fleet =
            Self { hosts: Vec::new(), ports: vec![free_address(), free_address()], store, folder };
        let address = fleet.store.address();
        let (_, name) = address.rsplit_once('/').unwrap();
        let (first, second) = (fleet.identity(0), fleet.identity(1));
        let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
        let [at, other] = [0, 1].map(|number| fleet.ports[number].to_string());
        plimsoll(&["init", &at, "--host", "h0", "--fleet", name, "--folder", first]);
        for number in 0..2 {
            std::fs::create_dir(fleet.models(number)).unwrap();
        }
        for part in [1, 2] {
            std::fs::write(fleet.file(0, part), content(part)).unwrap();
        }
        fleet.hosts.push(fleet.host(0, lines));
        let invitation = plimsoll(&["invite", "--folder", first]);
        plimsoll(&["join", &invitation, "--host", "h1", "--address", &other, "--folder", second]);
        fleet.hosts.push(fleet.host(1, lines));
        fleet
    }

    fn identity(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("h{number}"))
    }

    fn models(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("models{number}"))
    }

    fn file(&self, number: usize, part: u8) -> PathBuf {
        self.models(number).join(format!("m-0000{part}-of-00002.gguf"))
    }

    fn host(&self, number: usize, lines: &str) -> Daemon {
        let (model, engine) = (self.file(number, 1), fake_engine());
        let model = format!(
            "[models.one]\nmodel = \"{}\"\nprogram = \"{}\"\nmemory = \"100MiB\"\n",
            model.display(),
            engine.display()
        );
        let table = format!("[fleet]\nidentity = \"{}\"\n{lines}\n", self.identity(number).display());
        Setup::with_cards(&["name=host,kind=host,total=1GiB"])
            .config("[serve]\nwait = \"1s\"\n")
            .config(&model)
            .config(&table)
            .argument("--fleet")
            .argument(&self.store.address())
            .start()
    }

    /// Lets the first host take no model, so that its file is of use to the second alone.
    fn close_the_first(&self) {
        let offers = |view: FleetView| view.host("h0").is_some_and(|host| view.offer(host, "one").is_some());
        until("the first host offers the model", || view(&self.store).is_some_and(offers));
        plimsoll(&["cordon", "h0", "--store", &self.store.address()]);
    }

    /// Asks the host until it answers itself.
    fn answers(&self, number: usize) {
        let mut last = String::new();
        for _ in 0..900 {
            let answer = http::chat(self.hosts[number].address, "one");
            if answer.status == 200 {
                assert_eq!(answer.header("plimsoll-host"), None);
                return;
            }
            last = answer.text();
            std::thread::sleep(Duration::from_millis(100));
        }
        let talk: String = self.hosts.iter().map(Daemon::talk).collect();
        panic!("no answer: {last}\n{talk}\n{}", dump_of(&self.store));
    }

    /// Bytes that have come, of whole files and of others.
    fn come(&self) -> u64 {
        let entries = std::fs::read_dir(self.models(1)).unwrap().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|about| about.len()).sum()
    }

    /// Asks until so many bytes have come; the refusals meanwhile say why.
    fn copies(&self, bytes: u64) {
        let mut reasons = String::new();
        until("a copy goes on", || {
            reasons += &http::chat(self.hosts[1].address, "one").text();
            self.come() >= bytes
        });
        assert!(reasons.contains("copies_file") && reasons.contains("host_drains"), "{reasons}");
    }

    fn given(&self) -> u64 {
        let page = http::get(self.hosts[0].address, "/metrics").text();
        let line = page.lines().find_map(|line| line.strip_prefix("plimsoll_fleet_given_bytes_total "));
        line.unwrap().parse().unwrap()
    }

    fn visit(&self, as_whom: Shown<'_>) -> Visit {
        Visit::of(self.ports[0], as_whom)
    }

    fn assert_whole(&self) {
        for part in [1, 2] {
            assert!(std::fs::read(self.file(1, part)).unwrap() == content(part), "part {part}");
        }
        let left: Vec<_> =
            std::fs::read_dir(self.models(1)).unwrap().flatten().map(|it| it.file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}

/// A request for files.
fn ask(path: &str, range: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: h\r\nplimsoll-hop: files\r\nplimsoll-model: one\r\nRange: {range}\r\n\
            Connection: close\r\n\r\n"
    )
}

fn order() -> &'static str {
    "POST / HTTP/1.1\r\nHost: h\r\nplimsoll-hop: copy\r\nplimsoll-model: one\r\nContent-Length: 0\r\n\
        Connection: close\r\n\r\n"
}

#[test]
fn a_host_copies_the_files_that_it_lacks_when_the_host_that_has_them_takes_no_model() {
    let fleet = Sharing::start("share-files = true");
    // While the host with the files takes models, nothing is copied.
    until("an answer", || http::chat(fleet.hosts[1].address, "one").status == 200);
    assert_eq!(fleet.come(), 0);
    plimsoll(&["leave", "h0", "--store", &fleet.store.address()]);
    fleet.answers(1);
    fleet.assert_whole();
    fleet.hosts[1].reported("the files of model 'one' were copied from host 'h0'");
    assert_eq!(fleet.given(), 2 * SIZE as u64);
    assert!(!dump_of(&fleet.store).contains("gguf"), "the store holds no path");
}

#[test]
fn a_copy_that_is_cut_in_the_middle_goes_on_after_a_restart() {
    let mut fleet = Sharing::start("share-files = true\nshare-bandwidth = \"1MiB\"");
    fleet.close_the_first();
    fleet.copies(1 << 20);
    until("the copy is shown", || {
        let shown = plimsoll(&["ps", "--store", &fleet.store.address()]);
        shown.contains("one: its files come from h0")
    });
    let status = fleet.hosts[1].status();
    assert_eq!(status["downloads"][0]["total"], 2 * SIZE, "{status}");
    // A host that dies has no time to tidy up either.
    for signal in ["TERM", "KILL"] {
        fleet.hosts[1].signal(signal);
        fleet.hosts[1].wait();
        let come = fleet.come();
        assert!(come >= 1 << 20 && come < 2 * SIZE as u64, "{come} stay after {signal}");
        fleet.hosts[1] = fleet.host(1, "share-files = true\nshare-bandwidth = \"1MiB\"");
        fleet.copies(come + (1 << 20));
    }
    fleet.answers(1);
    fleet.assert_whole();
    let most = 2 * SIZE as u64 + (2 << 20);
    assert!(fleet.given() <= most, "{} of {most}: nothing is copied twice", fleet.given());
    let is_over =
        |view: FleetView| view.copies.values().all(|copies| copies.record.body == HostCopies::default());
    until("the copy is over", || view(&fleet.store).is_some_and(is_over));
}

#[test]
fn no_file_but_those_of_an_offered_model_is_given_and_to_hosts_alone() {
    let fleet = Sharing::start("share-files = true");
    fleet.close_the_first();
    let host = fleet.identity(1);
    let secret = fleet.models(0).join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    for (path, range, status) in [
        ("/../../../../etc/passwd".to_owned(), "bytes=0-10", 400),
        (secret.display().to_string(), "bytes=0-10", 400),
        ("/secret".to_owned(), "bytes=0-10", 400),
        (format!("/{sha256}"), "bytes=0-5", 404),
        (format!("/{sha256}"), "", 400),
        (format!("/{sha256}/../secret"), "bytes=0-5", 400),
        ("/00ff00ff00ff00ff-12".to_owned(), "", 409),
    ] {
        let (got, text) = fleet.visit(Shown::Host(&host)).ask(&ask(&path, range)).unwrap();
        assert_eq!(got, status, "{path} {range}: {text}");
        assert!(!text.contains("root:") && !text.ends_with("secret"), "{text}");
    }
    let order_for_nothing = fleet.visit(Shown::Host(&host)).ask(order()).unwrap();
    assert_eq!(order_for_nothing.0, 409, "a host that lacks nothing copies nothing");
    // A stranger, a stranger's certificate, a client with and without its hop.
    let foreign = tempfile::tempdir().unwrap();
    let address = fleet.store.address();
    let (_, name) = address.rsplit_once('/').unwrap();
    let folder = foreign.path().to_str().unwrap();
    plimsoll(&["init", "127.0.0.1:1", "--host", "h1", "--fleet", name, "--folder", folder]);
    let file = format!("/{}", digest_of(&fleet.file(0, 1)));
    let fetch = ask(&file, "bytes=0-5");
    assert_eq!(fleet.visit(Shown::Nothing).ask(&fetch).map(|(status, _)| status).unwrap_or(401), 401);
    assert_eq!(fleet.visit(Shown::Host(foreign.path())).ask(&fetch), Err(()));
    let lines = "plimsoll-hop: files\r\nplimsoll-model: one\r\nRange: bytes=0-5\r\n";
    let client = http::read(&http::open_with(fleet.hosts[0].address, "GET", &file, lines, None));
    assert_eq!((client.status, client.json()["error"]["code"].as_str()), (403, Some("wrong_port")));
    // The host of the fleet gets it, once its digest is known.
    fleet.answers(1);
    let (status, text) = fleet.visit(Shown::Host(&host)).ask(&fetch).unwrap();
    assert!(status == 206 && text.contains("bytes 0-5/6291456"), "{text}");
    let (status, _) = fleet.visit(Shown::Host(&host)).ask(&ask(&file, "bytes=6291450-6291460")).unwrap();
    assert_eq!(status, 416);
    let store = fleet.store.address();
    plimsoll(&["revoke", "h1", "--store", &store, "--folder", fleet.identity(0).to_str().unwrap()]);
    fleet.hosts[0].reported("is no longer valid");
    assert_eq!(fleet.visit(Shown::Host(&host)).ask(&fetch), Err(()));
}

#[test]
fn a_host_that_shares_nothing_gives_nothing_and_copies_nothing() {
    let fleet = Sharing::start("");
    fleet.close_the_first();
    let host = fleet.identity(1);
    let file = format!("/{}", digest_of(&fleet.file(0, 1)));
    for request in [ask(&file, "bytes=0-5"), order().to_owned()] {
        let (status, text) = fleet.visit(Shown::Host(&host)).ask(&request).unwrap();
        assert!(status == 404 && text.contains("files_not_shared"), "{text}");
    }
    let refused = http::chat(fleet.hosts[1].address, "one");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(!fleet.file(1, 1).exists() && !dump_of(&fleet.store).contains("copies/"));
}

#[test]
fn with_a_shared_key_files_are_for_those_that_have_it() {
    let fleet = Fleet::with_lines("1GiB", ("", ""), "share-files = true");
    for (hop, code) in [("files", "bad_request"), ("copy", "no_copy")] {
        let ask = |key: &str| {
            let lines = [("plimsoll-hop", hop), ("plimsoll-model", "one"), ("authorization", key)];
            let answer = header(fleet.hosts[1].address, &lines);
            (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
        };
        for wrong in ["", "Bearer ", "Bearer guess"] {
            assert_eq!(ask(wrong), (401, "invalid_fleet_key".to_owned()), "{hop} {wrong}");
        }
        assert_eq!(ask(&format!("Bearer {KEY}")).1, code);
    }
}

fn digest_of(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}
