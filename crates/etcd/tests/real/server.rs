//! etcd server for the tests, from Debian or PyPI, unpacked below the target directory and not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;
/// Plain HTTP beside TLS, by which tests set a store up.
const SET_UP: u16 = 2378;

/// Runs a command that has to succeed.
fn run(command: &mut Command) {
    let done = command.stdout(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The program, fetched once.
pub(crate) fn program() -> PathBuf {
    // The test lies in `deps` of a profile in cargo's folder.
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let place = target.join("etcd-debian");
    let lock = fs::File::create(target.join("etcd-debian.lock")).unwrap();
    // Tests run in processes of their own, and one of them fetches.
    lock.lock().unwrap();
    if !place.exists() {
        let partial = target.join("etcd-debian.partial");
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial).unwrap();
        fetch(&partial);
        fs::rename(&partial, &place).unwrap();
    }
    place.join("usr/bin/etcd")
}

fn fetch(place: &Path) {
    let get = |words: &[&str]| Command::new("apt-get").args(words).current_dir(place).output().unwrap();
    let download = ["download", "-o", "APT::Sandbox::User=root", "etcd-server"];
    // The lists of packages may be missing.
    if !get(&download).status.success() {
        run(Command::new("apt-get").arg("update"));
        run(Command::new("apt-get").args(download).current_dir(place));
    }
    let package = fs::read_dir(place).unwrap().flatten().next().unwrap().path();
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(place));
    fs::remove_file(package).unwrap();
}

/// An authority, and certificates of the store and of a client.
fn make_certificates(folder: &Path, host: &str) {
    let openssl = |words: &str| {
        run(Command::new("openssl").args(words.split(' ')).current_dir(folder).stderr(Stdio::piped()))
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    // A member is its own client, by its gateway.
    fs::write(
        folder.join("extensions"),
        format!("subjectAltName=IP:{host}\nextendedKeyUsage=serverAuth,clientAuth\n"),
    )
    .unwrap();
    // Without common names, which the gateway refuses where users are required.
    for name in ["store", "client"] {
        openssl(&format!("req {key} -keyout {name}.key -out {name}.request -subj /"));
        openssl(&format!(
            "x509 -req -in {name}.request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out {name}.pem"
        ));
    }
}

fn secured_arguments(folder: &Path, host: &str) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let words = [
        ("--listen-client-urls", format!("https://{host}:{CLIENTS},http://{host}:{SET_UP}")),
        ("--advertise-client-urls", format!("https://{host}:{CLIENTS}")),
        ("--cert-file", file("store.pem")),
        ("--key-file", file("store.key")),
        ("--trusted-ca-file", file("ca.pem")),
    ];
    let words = words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    words.chain(["--client-cert-auth".to_owned()]).collect()
}

/// A store of some members on this machine, ended when dropped.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    folder: TempDir,
    is_secured: bool,
}

pub(crate) struct Member {
    arguments: Vec<String>,
    pub(crate) address: String,
    namespace: Option<String>,
    process: Child,
}

/// Where a member runs: its address, and the network namespace that has it.
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) namespace: Option<String>,
}

/// Loopback addresses of one cluster. No other process has them, so that its ports cannot be taken meanwhile.
fn hosts(members: usize) -> Vec<String> {
    static CLUSTERS: AtomicUsize = AtomicUsize::new(0);
    let (pid, cluster) = (std::process::id(), CLUSTERS.fetch_add(1, Ordering::Relaxed));
    let host =
        |member| format!("127.{}.{}.{}", 1 + (pid >> 8) % 250, pid & 0xff, 1 + (cluster * 7 + member) % 250);
    (0..members).map(host).collect()
}

fn start(arguments: &[String], namespace: Option<&str>) -> Child {
    let mut command = match namespace {
        // It becomes the program, and forks nothing.
        Some(name) => {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{name}")).arg(program());
            command
        }
        None => Command::new(program()),
    };
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Cluster {
    /// Members on loopback addresses.
    pub(crate) fn start(members: usize) -> Self {
        Self::placed(hosts(members).into_iter().map(|host| Place { host, namespace: None }).collect())
    }

    /// A member that speaks TLS and requires a certificate of its authority.
    pub(crate) fn secured() -> Self {
        let places = hosts(1).into_iter().map(|host| Place { host, namespace: None });
        Self::with(places.collect(), true)
    }

    pub(crate) fn placed(places: Vec<Place>) -> Self {
        Self::with(places, false)
    }

    fn with(places: Vec<Place>, is_secured: bool) -> Self {
        // In memory where nothing slows a disk down: a member that waits for a busy one loses its votes.
        let is_plain = places.iter().all(|place| place.namespace.is_none());
        let memory = if is_plain { tempfile::tempdir_in("/dev/shm").ok() } else { None };
        let folder = memory.unwrap_or_else(|| tempfile::tempdir().unwrap());
        fs::create_dir(folder.path().join("data")).unwrap();
        if is_secured {
            make_certificates(folder.path(), &places[0].host);
        }
        let url = |at: usize, port: u16| format!("http://{}:{port}", places[at].host);
        let all: Vec<String> = (0..places.len()).map(|at| format!("m{at}={}", url(at, PEERS))).collect();
        let member = |at: usize| {
            let (client, peer) = (url(at, CLIENTS), url(at, PEERS));
            let data = folder.path().join(format!("data/m{at}")).display().to_string();
            let arguments = [
                ("--name", format!("m{at}")),
                ("--data-dir", data),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", all.join(",")),
                ("--logger", "zap".to_owned()),
            ];
            let mut arguments: Vec<String> =
                arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
            if is_secured {
                arguments.extend(secured_arguments(folder.path(), &places[at].host));
            }
            let Place { host, namespace } = &places[at];
            let process = start(&arguments, namespace.as_deref());
            Member { arguments, address: format!("{host}:{CLIENTS}"), namespace: namespace.clone(), process }
        };
        let members = (0..places.len()).map(member).collect();
        Self { members, folder, is_secured }
    }

    pub(crate) fn address(&self) -> String {
        let members: Vec<&str> = self.members.iter().map(|member| member.address.as_str()).collect();
        let scheme = if self.is_secured { "etcds" } else { "etcd" };
        format!("{scheme}://{}/test", members.join(","))
    }

    /// Where a secured store takes plain requests.
    pub(crate) fn set_up_address(&self) -> String {
        let address = &self.members[0].address;
        format!("{}:{SET_UP}", address.rsplit_once(':').unwrap().0)
    }

    /// A file of a secured store, or one beside them.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of the members' data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Copies the data of all members, as a backup does.
    pub(crate) fn back_up(&mut self) {
        self.exchange("data", "backup");
    }

    /// Puts the backup in the place of the data.
    pub(crate) fn restore(&mut self) {
        self.exchange("backup", "data");
    }

    fn exchange(&mut self, from: &str, to: &str) {
        self.members.iter_mut().for_each(Member::kill);
        let path = |name: &str| self.folder.path().join(name);
        let _ = fs::remove_dir_all(path(to));
        run(Command::new("cp").arg("-a").args([path(from), path(to)]));
        self.members.iter_mut().for_each(Member::restart);
    }
}

impl Member {
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// Starts it with further arguments, which it has until the next start.
    pub(crate) fn restart_with(&mut self, more: &[&str]) {
        let all: Vec<String> =
            self.arguments.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect();
        self.process = start(&all, self.namespace.as_deref());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal, such as STOP or CONT.
    pub(crate) fn signal(&self, name: &str) {
        run(Command::new("kill").arg(format!("-{name}")).arg(self.process.id().to_string()));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
