//! Shared setup of the launch tests: starts child processes as the daemon does, and looks at the table of
//! processes.

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_engine::{
    Child, ChildEnded, ChildEvent, ChildSpec, EngineAddress, Readiness, StopWay, Visible, child_environment,
    free_port,
};
use plimsoll_log::Log;
use plimsoll_process::confinement::Confinement;
use plimsoll_process::{Environment, Launcher};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::daemon::fake_engine;

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Runs a test as the daemon runs: one thread, local tasks.
pub(crate) fn on_one_thread<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

pub(crate) fn launcher() -> Launcher {
    Launcher::start_with(Path::new(env!("CARGO_BIN_EXE_plimsoll"))).unwrap()
}

/// A child that runs the fake engine with the script `faults`, under the control channel.
pub(crate) fn engine(faults: &str) -> ChildSpec {
    let port = free_port(&[]).unwrap();
    let arguments = ["--host", "127.0.0.1", "--port", &port.to_string(), "--alias", "alpha"];
    ChildSpec {
        arguments: arguments.map(OsString::from).to_vec(),
        environment: environment(&[("PLIMSOLL_FAKE_ENGINE", faults)], Some(port)),
        address: EngineAddress::Port(port),
        readiness: Readiness::Control,
        stop: StopWay::ExitCommand,
        ..shell("")
    }
    .with_program(&fake_engine())
}

/// A child that runs a shell script and is ready at once.
pub(crate) fn shell(script: &str) -> ChildSpec {
    ChildSpec {
        name: "alpha".to_owned(),
        program: PathBuf::from("/bin/sh"),
        arguments: vec!["-c".into(), script.into()],
        environment: environment(&[], None),
        directory: None,
        address: EngineAddress::Port(0),
        readiness: Readiness::Immediate,
        stop: StopWay::Terminate,
        confinement: Confinement::default(),
        gives_up: plimsoll_doctor::gives_up,
    }
}

pub(crate) trait WithProgram {
    fn with_program(self, program: &Path) -> Self;
}

impl WithProgram for ChildSpec {
    fn with_program(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.program);
        self
    }
}

pub(crate) fn environment(own: &[(&str, &str)], control_port: Option<u16>) -> Environment {
    let own: Vec<_> = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    child_environment(std::env::vars_os(), &own, &Visible::NoCard, control_port, None)
}

/// A child under test, with its events.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) events: mpsc::Receiver<ChildEvent>,
}

pub(crate) async fn start(launcher: &Launcher, spec: ChildSpec) -> Running {
    let log = Log::new(&spec.name, Bytes::kib(64));
    let (child, events) = spec.start(launcher, log).await.unwrap();
    Running { child, events }
}

impl Running {
    pub(crate) fn port(&self) -> u16 {
        match self.child.address() {
            EngineAddress::Port(port) => *port,
            socket => panic!("{socket} is no port"),
        }
    }

    pub(crate) async fn next(&mut self) -> ChildEvent {
        timeout(LIMIT, self.events.recv()).await.unwrap().unwrap()
    }

    /// Waits until it is ready; it must not end before.
    pub(crate) async fn ready(&mut self) {
        loop {
            match self.next().await {
                ChildEvent::Ready(_) => return,
                ChildEvent::Ended(ended) => panic!("ended before it was ready: {ended:?}"),
                _ => {}
            }
        }
    }

    /// Waits for the end, which must be the last event.
    pub(crate) async fn ended(&mut self) -> ChildEnded {
        loop {
            if let ChildEvent::Ended(ended) = self.next().await {
                assert_eq!(timeout(LIMIT, self.events.recv()).await.unwrap(), None);
                return ended;
            }
        }
    }
}

/// True while the process exists and is no zombie.
pub(crate) fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !is_zombie(&stat))
}

fn is_zombie(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Fails unless `what` comes true in time.
pub(crate) fn eventually(what: impl Fn() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !what() {
        assert!(Instant::now() < limit, "it never came true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Zombies among our own children.
pub(crate) fn zombies() -> usize {
    let us = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| {
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
            is_zombie(stat) && parent == Some(us.as_str())
        })
        .count()
}

pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

const ROLE: &str = "PLIMSOLL_TEST_ROLE";

/// True in the process that [`alone`] started.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The test `name` again, in a process that runs nothing else.
pub(crate) fn alone(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(ROLE, "alone");
    command
}
