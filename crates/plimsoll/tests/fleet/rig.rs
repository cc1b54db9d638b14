//! Test setup of three daemons and an etcd of three members; the first daemon has no room for any model.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use plimsoll_etcd::{Etcd, StoreAccess, StoreAddress};
use plimsoll_fleet::{FleetView, KeySpace, StoreChange};
use tempfile::TempDir;

use super::server::Cluster;
use crate::daemon::{Daemon, Setup, until};
use crate::http::{self, Answer};

pub(crate) const KEY: &str = "a-key-of-the-fleet-and-of-no-client";

pub(crate) struct Fleet {
    pub(crate) hosts: Vec<Daemon>,
    pub(crate) store: Cluster,
    folder: TempDir,
    script: &'static str,
    more: &'static str,
    /// Further lines under `[fleet]`.
    lines: &'static str,
}

impl Fleet {
    pub(crate) fn start() -> Self {
        Self::with("64MiB", "", "")
    }

    /// A fleet whose first daemon has so much memory, and whose engines have a script and further lines of
    /// TOML.
    pub(crate) fn with(memory: &str, script: &'static str, more: &'static str) -> Self {
        Self::with_lines(memory, (script, more), "")
    }

    /// The same with further lines under `[fleet]`.
    pub(crate) fn with_lines(
        memory: &str,
        (script, more): (&'static str, &'static str),
        lines: &'static str,
    ) -> Self {
        let (store, folder) = (Cluster::start(3), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("key"), KEY).unwrap();
        let mut fleet = Self { hosts: Vec::new(), store, folder, script, more, lines };
        for (number, memory) in [memory, "1GiB", "1GiB"].into_iter().enumerate() {
            let host = fleet.host(number, memory);
            fleet.hosts.push(host);
        }
        // An operator can name a host from then on.
        until("every host is registered", || view(&fleet.store).is_some_and(|view| view.hosts.len() == 3));
        fleet
    }

    pub(crate) fn host(&self, number: usize, memory: &str) -> Daemon {
        self.host_of(number, memory, &self.store.address())
    }

    /// A host that reaches the store at this address.
    pub(crate) fn host_of(&self, number: usize, memory: &str, store: &str) -> Daemon {
        let key = self.folder.path().join("key");
        let (key, lines) = (key.display(), self.lines);
        let table = format!("[fleet]\nhost = \"h{number}\"\nkey-file = \"{key}\"\n{lines}\n");
        Setup::with_cards(&[&format!("name=host,kind=host,total={memory}")])
            .model("one", "100MiB", self.script, self.more)
            .model("two", "100MiB", self.script, self.more)
            .config(&table)
            .argument("--fleet")
            .argument(store)
            .start()
    }

    /// Asks until there is an answer: hosts register a moment after their start, and leases end by time,
    /// later where the store's leader changes.
    pub(crate) fn ask(&self, host: usize, model: &str) -> Answer {
        let mut last = String::new();
        for _ in 0..900 {
            let answer = http::chat(self.hosts[host].address, model);
            if answer.status == 200 {
                return answer;
            }
            last = answer.text();
            assert_eq!(answer.status, 503, "{last}");
            std::thread::sleep(Duration::from_millis(100));
        }
        let talk: String = self.hosts.iter().map(Daemon::talk).collect();
        panic!("no answer: {last}\n{talk}\nthe store:\n{}", self.dump());
    }

    fn range(&self) -> serde_json::Value {
        range(&self.store)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.range()["header"]["revision"].as_str().unwrap().parse().unwrap()
    }

    /// Writes keys of no fleet until the store's revision is past this one.
    pub(crate) fn write_past(&self, revision: u64) {
        // The key is "other", in base64.
        let body = serde_json::json!({ "key": "b3RoZXI=", "value": "" });
        until("the store's revision is past", || {
            http::post(self.store.members[0].address.parse().unwrap(), "/v3/kv/put", &body);
            self.revision() > revision
        });
    }

    /// All keys and values of the store, as text.
    pub(crate) fn dump(&self) -> String {
        dump_of(&self.store)
    }

    /// The lease of a host's registration, 0 for one without; `None` for a host that is not registered.
    pub(crate) fn lease_of(&self, host: &str) -> Option<u64> {
        let (range, key) = (self.range(), format!("hosts/{host}"));
        let pairs = range["kvs"].as_array()?.iter();
        let pair = pairs.into_iter().find(|pair| decode(pair["key"].as_str().unwrap()).ends_with(&key))?;
        Some(pair["lease"].as_str().unwrap_or("0").parse().unwrap())
    }

    /// The token of a model's seat.
    pub(crate) fn seat(&self, model: &str) -> String {
        let pairs = self.range()["kvs"].as_array().unwrap().clone();
        let key = format!("seats/{model}/0");
        let pair = pairs.iter().find(|pair| decode(pair["key"].as_str().unwrap()).ends_with(&key)).unwrap();
        let seat: serde_json::Value = serde_json::from_str(&decode(pair["value"].as_str().unwrap())).unwrap();
        format!("{}:{}", seat["incarnation"].as_str().unwrap(), pair["mod_revision"].as_str().unwrap())
    }
}

fn range(store: &Cluster) -> serde_json::Value {
    // All keys, in base64: "\0" to "\0" is everything.
    let body = serde_json::json!({ "key": "AA==", "range_end": "AA==" });
    http::post(store.members[0].address.parse().unwrap(), "/v3/kv/range", &body).json()
}

/// All keys and values of a store, as text.
pub(crate) fn dump_of(store: &Cluster) -> String {
    let pairs = range(store)["kvs"].as_array().unwrap().clone();
    let text = |value: &serde_json::Value| decode(value.as_str().unwrap_or_default());
    pairs.iter().map(|pair| format!("{} {}\n", text(&pair["key"]), text(&pair["value"]))).collect()
}

fn decode(text: &str) -> String {
    String::from_utf8_lossy(&decode_bytes(text)).into_owned()
}

/// Bytes of base64.
pub(crate) fn decode_bytes(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut occupied, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = LETTERS.iter().position(|other| *other == letter).unwrap();
        bits = (bits << 6) | u32::try_from(value).unwrap();
        occupied += 6;
        if occupied >= 8 {
            occupied -= 8;
            bytes.push(u8::try_from((bits >> occupied) & 0xff).unwrap());
        }
    }
    bytes
}

/// A request with these header lines.
pub(crate) fn header(address: SocketAddr, lines: &[(&str, &str)]) -> Answer {
    let body = http::chat_body("one", false).to_string();
    let mut head =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".to_owned();
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    http::read(&stream)
}

/// What `plimsoll fleet` prints.
pub(crate) fn operator(fleet: &Fleet, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = command.arg("fleet").args(words).args(["--store", &fleet.store.address()]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The store as it is now; `None` if it does not answer.
pub(crate) fn view(store: &Cluster) -> Option<FleetView> {
    let (client, runtime) = client(store);
    let (header, records) = runtime.block_on(client.read()).ok()?;
    Some(FleetView::at(header.revision, records))
}

fn client(store: &Cluster) -> (Etcd, tokio::runtime::Runtime) {
    let address: StoreAddress = store.address().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (Etcd::new(&address, KeySpace::of(&address.fleet).unwrap(), &StoreAccess::default()).unwrap(), runtime)
}

/// All changes of the store, from its first revision.
pub(crate) fn history(store: &Cluster) -> Vec<StoreChange> {
    let (client, runtime) = client(store);
    runtime.block_on(async {
        let (last, mut changes) = (client.header().await.unwrap().revision, Vec::<StoreChange>::new());
        let mut watch = client.watch(1).await.unwrap();
        while changes.last().is_none_or(|change| change.revision < last) {
            let news = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
            changes.extend(news.expect("the watch tells every revision").unwrap());
        }
        changes
    })
}
