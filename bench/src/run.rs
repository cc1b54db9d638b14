//! Runs a benchmark: starts the servers under test, measures part by part, and writes the report.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::client::Connection;
use crate::measure::{paired, startup, streams, swap, throughput};
use crate::options::{Part, Serve};
use crate::process::{ProcessError, Server, peak_kib};
use crate::proxies;
use crate::proxies::Plimsoll;
use crate::report::{Peak, Report};
use crate::requests;

/// Names of the two builds of plimsoll in the report.
const NOW: &str = "plimsoll";
const BEFORE: &str = "before";

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("cannot talk to {target}: {source}")]
    Talk { target: String, source: io::Error },
    #[error("{target} answered {status} to the {what}")]
    Refused { target: String, what: &'static str, status: u16 },
    #[error("cannot make a folder for configurations: {0}")]
    Folder(io::Error),
    #[error("cannot write {path}: {source}")]
    WriteJson { path: PathBuf, source: io::Error },
    #[error("cannot write the report: {0}")]
    Print(io::Error),
}

/// A place to send requests to, and the processes whose CPU it costs.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) pids: Vec<u32>,
}

impl Target {
    pub(crate) fn of(name: &str, server: &Server) -> Self {
        Self { name: name.to_owned(), address: server.address, pids: server.family() }
    }

    pub(crate) fn talk<T>(&self, result: io::Result<T>) -> Result<T, RunError> {
        result.map_err(|source| RunError::Talk { target: self.name.clone(), source })
    }

    /// Sends one chat request and insists on a 200: the model is loaded and the path works.
    fn warm(&self) -> Result<(), RunError> {
        let request = requests::chat("alpha", 400);
        let (reply, _) =
            self.talk(Connection::open(self.address).and_then(|mut line| line.exchange(&request)))?;
        self.insist(reply.status, "first request")
    }

    pub(crate) fn insist(&self, status: u16, what: &'static str) -> Result<(), RunError> {
        if status == 200 {
            Ok(())
        } else {
            Err(RunError::Refused { target: self.name.clone(), what, status })
        }
    }
}

pub(crate) fn run(options: &Serve) -> Result<(), RunError> {
    let folder = tempfile::tempdir().map_err(RunError::Folder)?;
    let mut builds = Vec::new();
    for (name, program) in [(NOW, &options.plimsoll), (BEFORE, &options.before)] {
        if let Some(program) = program {
            builds.push(Plimsoll { name, program, engine: &options.engine, folder: folder.path() });
        }
    }
    let mut report = Report::of_this_machine();
    measure_targets(options, &builds, folder.path(), &mut report)?;
    if options.wants(Part::Swap) {
        report.swap = swap::measure(&builds)?;
    }
    if options.wants(Part::Startup) {
        report.startup = startup::measure(&builds)?;
    }
    publish(options, &report)
}

fn measure_targets(
    options: &Serve,
    builds: &[Plimsoll<'_>],
    folder: &Path,
    report: &mut Report,
) -> Result<(), RunError> {
    if ![Part::Paired, Part::Throughput, Part::Streams].into_iter().any(|part| options.wants(part)) {
        return Ok(());
    }
    let engine = proxies::engine(&options.engine)?;
    let mut servers = vec![("direct", engine)];
    if options.nginx.as_os_str() != "none" {
        servers.push(("nginx", proxies::nginx(&options.nginx, servers[0].1.address, folder)?));
    }
    for build in builds {
        servers.push((build.name, build.ready(&["alpha"], false)?));
        // An older build may not read the keys of this one.
        if build.name == NOW {
            servers.push(("plimsoll, keys", build.ready(&["alpha"], true)?));
        }
    }
    let mut targets: Vec<Target> = servers.iter().map(|(name, server)| Target::of(name, server)).collect();
    targets.extend(options.others.iter().map(|other| Target {
        name: other.name.clone(),
        address: other.address,
        pids: other.pid.into_iter().collect(),
    }));
    targets.iter().try_for_each(Target::warm)?;
    if options.wants(Part::Paired) {
        report.paired = paired::measure(&targets, options.rounds)?;
    }
    if options.wants(Part::Throughput) {
        report.throughput = throughput::measure(&targets, options.slice_ms, options.repeats)?;
    }
    if options.wants(Part::Streams) {
        report.streams = streams::measure(&targets, options.repeats)?;
    }
    let peak = |target: &Target| Peak { target: target.name.clone(), peak_rss_kib: peak_kib(&target.pids) };
    report.memory = targets.iter().map(peak).collect();
    Ok(())
}

fn publish(options: &Serve, report: &Report) -> Result<(), RunError> {
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(report).map_err(io::Error::other);
        text.and_then(|text| fs::write(path, text + "\n"))
            .map_err(|source| RunError::WriteJson { path: path.clone(), source })?;
    }
    write!(io::stdout(), "{report}").map_err(RunError::Print)
}
