//! Measures the latency that a hop adds (a request that one host of a fleet passes to another).
//!
//! Each round sends the same request to the host that has the model loaded, and to a host that passes it on.
//!
//! Two fleets of two hosts run: one with a shared key, one with certificates. In each, the first host has no
//! room, so the second one loads the model. Both fleets use one etcd member, under different names.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Connection;
use crate::measure::{paired, streams};
use crate::options::Hop;
use crate::process::{ProcessError, Server, free_address};
use crate::proxies::{Plimsoll, words};
use crate::report::Report;
use crate::requests;
use crate::run::{RunError, Target};

/// Time until the hosts know each other and the model is loaded.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);
const KEY: &str = "a-key-of-a-fleet-for-a-benchmark";

#[derive(Debug, thiserror::Error)]
pub(crate) enum HopError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cannot prepare the fleet: {0}")]
    Prepare(io::Error),
    #[error("`plimsoll fleet {verb}` ended with {status}: {stated}")]
    Fleet { verb: &'static str, status: std::process::ExitStatus, stated: String },
    #[error("the first host did not pass a request on within {PATIENCE:?}: {0}")]
    NoHop(String),
}

impl From<ProcessError> for HopError {
    fn from(error: ProcessError) -> Self {
        Self::Run(error.into())
    }
}

/// A fleet of two hosts: the one that passes on, and the one that has the model.
struct Pair {
    /// Dropped in this order: the hosts tell the store.
    hosts: Vec<Server>,
}

pub(crate) fn run(options: &Hop) -> Result<(), HopError> {
    let folder = tempfile::tempdir().map_err(HopError::Prepare)?;
    let plimsoll = Plimsoll {
        name: "plimsoll",
        program: &options.plimsoll,
        engine: &options.engine,
        folder: folder.path(),
    };
    let (store, address) = etcd(&options.etcd, folder.path())?;
    let mut report = Report::of_this_machine();
    for certificates in [false, true] {
        let pair = Pair::start(&plimsoll, address, certificates)?;
        let names = if certificates {
            ["host, certificates", "hop, certificates"]
        } else {
            ["host, key", "hop, key"]
        };
        // The direct path is that of a client who asks the model's own host.
        let targets = [(names[0], &pair.hosts[1]), (names[1], &pair.hosts[0])];
        let targets: Vec<Target> = targets.iter().map(|(name, server)| Target::of(name, server)).collect();
        report.paired.extend(paired::measure(&targets, options.rounds)?);
        report.streams.extend(streams::measure(&targets, options.repeats)?);
    }
    drop(store);
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::other);
        text.and_then(|text| fs::write(path, text + "\n")).map_err(HopError::Prepare)?;
    }
    write!(io::stdout(), "{report}").map_err(HopError::Prepare)
}

fn etcd(program: &Path, folder: &Path) -> Result<(Server, SocketAddr), HopError> {
    let (client, peer) = (free_address()?, free_address()?);
    let arguments = words(&format!(
        "--name one --data-dir {} --listen-client-urls http://{client} --advertise-client-urls http://{client} \
            --listen-peer-urls http://{peer} --initial-advertise-peer-urls http://{peer} --initial-cluster one=http://{peer}",
        folder.join("etcd").display()
    ));
    let mut server = Server::spawn(program, &arguments, client)?;
    server.wait_ready()?;
    Ok((server, client))
}

impl Pair {
    fn start(plimsoll: &Plimsoll<'_>, store: SocketAddr, certificates: bool) -> Result<Self, HopError> {
        let fleet = if certificates { "certificates" } else { "key" };
        let store = format!("etcd://{store}/{fleet}");
        let key = plimsoll.folder.join("key");
        fs::write(&key, KEY).map_err(HopError::Prepare)?;
        let mut hosts = Vec::new();
        for (number, memory) in [(1, "64MiB"), (2, "1GiB")] {
            let identity = plimsoll.folder.join(format!("{fleet}-{number}"));
            let table = if certificates {
                enrol(plimsoll.program, fleet, number, &identity, plimsoll.folder)?;
                format!("[fleet]\nidentity = {identity:?}\n")
            } else {
                format!("[fleet]\nhost = \"host-{number}\"\nkey-file = {key:?}\n")
            };
            let mut host = plimsoll.spawn_host(&table, &store, memory)?;
            host.wait_ready()?;
            hosts.push(host);
        }
        let pair = Self { hosts };
        pair.wait_for_hop()?;
        Ok(pair)
    }

    /// Asks the first host until the second one answers through it.
    fn wait_for_hop(&self) -> Result<(), HopError> {
        let (start, request) = (Instant::now(), requests::chat("alpha", 400));
        let mut last = String::new();
        while start.elapsed() < PATIENCE {
            let requested =
                Connection::open(self.hosts[0].address).and_then(|mut line| line.exchange(&request));
            match requested {
                Ok((reply, _)) if reply.status == 200 => return Ok(()),
                Ok((reply, _)) => last = format!("status {}", reply.status),
                Err(error) => last = error.to_string(),
            }
            thread::sleep(PAUSE);
        }
        Err(HopError::NoHop(last))
    }
}

/// Gives a host its certificate, as an operator does: the first one begins the fleet, the second one joins
/// it.
fn enrol(program: &Path, fleet: &str, number: u32, identity: &Path, folder: &Path) -> Result<(), HopError> {
    let (address, host) = (free_address()?.to_string(), format!("host-{number}"));
    let shown = identity.display().to_string();
    if number == 1 {
        let line = ["init", &address, "--fleet", fleet, "--host", &host, "--folder", &shown];
        return command(program, "init", &line).map(drop);
    }
    let first = folder.join(format!("{fleet}-1")).display().to_string();
    let invitation = command(program, "invite", &["invite", "--folder", &first])?;
    let line = ["join", invitation.trim(), "--host", &host, "--address", &address, "--folder", &shown];
    command(program, "join", &line).map(drop)
}

fn command(program: &Path, verb: &'static str, line: &[&str]) -> Result<String, HopError> {
    let ran = Command::new(program).arg("fleet").args(line).stdin(Stdio::null()).output();
    let output = ran.map_err(HopError::Prepare)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(HopError::Fleet {
            verb,
            status: output.status,
            stated: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}
