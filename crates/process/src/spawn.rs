//! Forks, kills and reaps every child process, on one thread.
//!
//! One thread is the parent of every child, because a parent-death signal is sent when the forking *thread*
//! ends. A child is reaped after all processes of its group were killed, so its number cannot be reused
//! before.
//!
//! When the thread ends, the kernel kills the remaining children. Spawning blocks until the exec, so it stays
//! off the serving thread.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use plimsoll_base::Bytes;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::sync::oneshot;

use crate::cgroup::EngineCgroup;
use crate::confinement::Confinement;
use crate::descendants;
use crate::environment::Environment;
use crate::handle::ProcessHandle;
use crate::warden::Warden;

/// Time without a request after which the processes of the machine are looked at. Before, the thread that
/// waits for the child would wait for this one where both have the same processor: 0.15 ms of a swap
/// (measured).
const QUIET: Duration = Duration::from_millis(5);

/// Everything needed to start one process.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// For logs.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The whole environment; nothing else is inherited.
    pub environment: Environment,
    pub directory: Option<PathBuf>,
    /// The process reads commands on stdin, and ends with it.
    pub reads_stdin: bool,
    pub confinement: Confinement,
}

/// Where a llama-server may be that is not on the PATH.
fn installed(program: &Path) -> &'static str {
    match program.to_str() {
        Some("llama-server") => " (`plimsoll engine path` prints that of an installed one)",
        _ => "",
    }
}

/// Reasons why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("program `{}` was not found; install it, or give its full path{}", program.display(), installed(program))]
    FindProgram { program: PathBuf },
    #[error("`{}` is not executable; make the file executable with chmod +x", program.display())]
    NotExecutable { program: PathBuf },
    #[error("cannot start `{}`: {cause}", program.display())]
    Fork {
        program: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("out of file descriptors while starting `{}`; raise the limit (ulimit -n)", program.display())]
    OutOfDescriptors { program: PathBuf },
    #[error("cannot watch process {pid}: {cause}; Linux 5.3 or later is needed")]
    Watch {
        pid: u32,
        #[source]
        cause: io::Error,
    },
    #[error("cannot start the thread that launches engines: {0}")]
    StartThread(#[source] io::Error),
    #[error("the thread that launches engines has ended; restart plimsoll")]
    LauncherGone,
}

impl LaunchError {
    /// True if another start fails as well until something is changed; else the kernel lacked something for a
    /// moment.
    pub fn lasts(&self) -> bool {
        match self {
            Self::FindProgram { .. } | Self::NotExecutable { .. } | Self::LauncherGone => true,
            Self::Fork { .. } | Self::OutOfDescriptors { .. } | Self::Watch { .. } | Self::StartThread(_) => {
                false
            }
        }
    }
}

/// Handle of the launcher thread; clones share it.
#[derive(Clone, Debug)]
pub struct Launcher {
    requests: mpsc::Sender<SpawnRequest>,
}

#[derive(Debug)]
enum SpawnRequest {
    Spawn { spec: Box<ProcessSpec>, reply: oneshot::Sender<Result<Spawned, LaunchError>> },
    Prepare,
    Bound { pid: u32, memory: Bytes },
    Bury { child: std::process::Child, reply: Option<oneshot::Sender<io::Result<std::process::ExitStatus>>> },
}

/// A started child, and the descriptor that reports its end.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) child: std::process::Child,
    pub(crate) pidfd: OwnedFd,
}

impl Launcher {
    /// Starts the thread. Children pass through this very program (`plimsoll exec-child`).
    pub fn start() -> Result<Self, LaunchError> {
        Self::start_with(Path::new(crate::PLIMSOLL))
    }

    /// Like [`Self::start`], with the trampoline and the warden of another `plimsoll` program, for tests.
    pub fn start_with(plimsoll: &Path) -> Result<Self, LaunchError> {
        let (requests, inbox) = mpsc::channel();
        let plimsoll = plimsoll.to_owned();
        std::thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || {
                let warden = Warden::of(plimsoll.clone());
                let cgroups = BTreeMap::new();
                Parent { plimsoll, warden, cgroups, has_started: false }.serve(&inbox);
            })
            .map_err(LaunchError::StartThread)?;
        Ok(Self { requests })
    }

    /// Starts the warden, so that the first child need not wait for it.
    pub fn prepare(&self) {
        // The thread can only be gone when the process ends.
        let _ = self.requests.send(SpawnRequest::Prepare);
    }

    /// Finds out whether `spec` can be started at all, before a model is evicted for it.
    pub fn check(spec: &ProcessSpec) -> Result<(), LaunchError> {
        let paths = spec.environment.get("PATH");
        find_program(&spec.program, spec.directory.as_deref(), paths).map(drop)
    }

    /// Starts a process, whose end the current runtime awaits.
    pub async fn spawn(&self, spec: ProcessSpec) -> Result<ProcessHandle, LaunchError> {
        Self::check(&spec)?;
        let (reply, answer) = oneshot::channel();
        let request = SpawnRequest::Spawn { spec: Box::new(spec), reply };
        self.requests.send(request).map_err(|_| LaunchError::LauncherGone)?;
        let spawned = answer.await.map_err(|_| LaunchError::LauncherGone)??;
        ProcessHandle::new(spawned, self.clone())
    }

    /// Sweeps the group of a child that has ended (or shall), reaps it and returns its wait status.
    pub(crate) async fn bury(&self, child: std::process::Child) -> io::Result<std::process::ExitStatus> {
        let (reply, answer) = oneshot::channel();
        self.send_bury(child, Some(reply));
        answer.await.unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Changes the bound of a child's host memory, where it has one.
    pub fn bound_memory(&self, pid: u32, memory: Bytes) {
        // The thread can only be gone when the process ends.
        let _ = self.requests.send(SpawnRequest::Bound { pid, memory });
    }

    /// Kills the group of a child and reaps it, without returning its status.
    pub(crate) fn abandon(&self, child: std::process::Child) {
        self.send_bury(child, None);
    }

    fn send_bury(
        &self,
        child: std::process::Child,
        reply: Option<oneshot::Sender<io::Result<std::process::ExitStatus>>>,
    ) {
        // The thread can only be gone when the process ends; then the kernel and the warden do this.
        let _ = self.requests.send(SpawnRequest::Bury { child, reply });
    }
}

/// State of the launcher thread itself.
struct Parent {
    plimsoll: PathBuf,
    warden: Warden,
    cgroups: BTreeMap<u32, EngineCgroup>,
    /// A child was started since the processes of the machine were looked at.
    has_started: bool,
}

impl Parent {
    fn serve(mut self, inbox: &mpsc::Receiver<SpawnRequest>) {
        while let Some(request) = self.next(inbox) {
            match request {
                SpawnRequest::Spawn { spec, reply } => self.answer_spawn(&spec, reply),
                SpawnRequest::Prepare => self.prepare(),
                SpawnRequest::Bound { pid, memory } => self.bound(pid, memory),
                SpawnRequest::Bury { child, reply } => {
                    let status = self.bury(child);
                    if let Some(reply) = reply {
                        let _ = reply.send(status);
                    }
                }
            }
        }
    }

    /// Waits for a request. Scans the machine's processes while a child loads, because its end needs a
    /// complete list.
    fn next(&mut self, inbox: &mpsc::Receiver<SpawnRequest>) -> Option<SpawnRequest> {
        if self.has_started {
            match inbox.recv_timeout(QUIET) {
                Ok(request) => return Some(request),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    descendants::remember();
                    self.has_started = false;
                }
            }
        }
        inbox.recv().ok()
    }

    fn prepare(&mut self) {
        if let Err(cause) = self.warden.start() {
            tracing::error!(
                "the warden, the process that kills engines if plimsoll dies, cannot be started: {cause}; plimsoll \
                    tries again whenever it starts an engine"
            );
        }
    }

    fn answer_spawn(&mut self, spec: &ProcessSpec, reply: oneshot::Sender<Result<Spawned, LaunchError>>) {
        if let Err(Ok(unwanted)) = reply.send(self.spawn(spec)) {
            // The request was cancelled meanwhile, so no handle of this child exists.
            let _ = self.bury(unwanted.child);
        }
        self.has_started = true;
    }

    fn spawn(&mut self, spec: &ProcessSpec) -> Result<Spawned, LaunchError> {
        // Where this fails, the registration below tries again, and says so.
        let _ = self.warden.start();
        let child = self.command(spec).spawn().map_err(|cause| fork_error(&spec.program, cause))?;
        // The trampoline is still being loaded, so nothing has been forked outside yet.
        if let Some(cgroup) = EngineCgroup::enclose(child.id(), spec.confinement.host_memory) {
            self.cgroups.insert(child.id(), cgroup);
        }
        if let Err(cause) = self.warden.register(child.id()) {
            tracing::warn!(
                model = spec.name,
                "the warden, the process that kills engines if plimsoll dies, cannot watch this engine: \
                    {cause}"
            );
        }
        // The number cannot have been reused: the child is unreaped until `bury`.
        match pidfd_open(pid_of(&child), PidfdFlags::NONBLOCK) {
            Ok(pidfd) => Ok(Spawned { child, pidfd }),
            Err(cause) => {
                let pid = child.id();
                let _ = self.bury(child);
                Err(LaunchError::Watch { pid, cause: cause.into() })
            }
        }
    }

    fn bound(&self, pid: u32, memory: Bytes) {
        if let Some(Err(cause)) = self.cgroups.get(&pid).map(|cgroup| cgroup.bound(memory)) {
            tracing::debug!("cannot remove the host memory limit of process {pid}: {cause}");
        }
    }

    fn command(&self, spec: &ProcessSpec) -> Command {
        let mut command = Command::new(&self.plimsoll);
        command
            .arg("exec-child")
            .args(["--parent", &std::process::id().to_string()])
            .args(spec.confinement.arguments())
            .arg("--")
            .arg(&spec.program)
            .args(&spec.arguments)
            // The spec's environment is the whole one: the daemon's own key must not leak into it.
            .env_clear()
            .envs(spec.environment.iter())
            .stdin(if spec.reads_stdin { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: one signal reaches what it starts, and Ctrl-C on the terminal does not.
            .process_group(0);
        if let Some(directory) = &spec.directory {
            command.current_dir(directory);
        }
        command
    }

    /// Kills the group and all that descends from it while its leader is unreaped, so that its number is
    /// still its own.
    fn bury(&mut self, mut child: std::process::Child) -> io::Result<std::process::ExitStatus> {
        // Before the group: the death of the leader tears the tree apart, after which only marks are left.
        let cgroup = self.cgroups.remove(&child.id());
        cgroup.iter().for_each(EngineCgroup::kill);
        if !descendants::sweep(child.id()) {
            let _ = kill_process_group(pid_of(&child), Signal::KILL);
            descendants::sweep(child.id());
        }
        if let Err(cause) = self.warden.strike_off(child.id()) {
            tracing::warn!(
                "the warden, the process that kills engines if plimsoll dies, did not get the report that \
                    process {} has exited: {cause}",
                child.id()
            );
        }
        child.wait()
    }
}

pub(crate) fn pid_of(child: &std::process::Child) -> Pid {
    Pid::from_child(child)
}

fn fork_error(program: &Path, cause: io::Error) -> LaunchError {
    use rustix::io::Errno;
    let program = program.to_owned();
    match Errno::from_io_error(&cause) {
        Some(Errno::MFILE | Errno::NFILE) => LaunchError::OutOfDescriptors { program },
        _ => LaunchError::Fork { program, cause },
    }
}

/// Looks a program up as `execvp` would: by path if it holds a slash, else along `PATH`.
pub fn find_program(
    program: &Path,
    directory: Option<&Path>,
    paths: Option<&OsStr>,
) -> Result<PathBuf, LaunchError> {
    let has_slash = program.components().count() > 1;
    let candidates: Vec<PathBuf> = match (has_slash, directory) {
        (true, Some(directory)) => vec![directory.join(program)],
        (true, None) => vec![program.to_owned()],
        (false, _) => std::env::split_paths(paths.unwrap_or_else(|| OsStr::new("/usr/bin:/bin")))
            .map(|folder| folder.join(program))
            .collect(),
    };
    // A file that cannot be executed is reported only if no later folder has one that can, as `execvp` does.
    let mut found_file = false;
    for candidate in candidates {
        if candidate.is_file() && rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK).is_ok() {
            return Ok(candidate);
        }
        // A folder is there, and can no more be executed than a file without the right.
        found_file |= candidate.exists();
    }
    let program = program.to_owned();
    Err(if found_file {
        LaunchError::NotExecutable { program }
    } else {
        LaunchError::FindProgram { program }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_execvp_would_find_it() {
        assert!(find_program(Path::new("sh"), None, Some(OsStr::new("/nowhere:/bin"))).is_ok());
        assert!(find_program(Path::new("/bin/sh"), None, None).is_ok());
        assert!(matches!(
            find_program(Path::new("sh"), None, Some(OsStr::new("/nowhere"))),
            Err(LaunchError::FindProgram { .. })
        ));
        assert!(matches!(
            find_program(Path::new("/proc/version"), None, None),
            Err(LaunchError::NotExecutable { .. })
        ));
    }
}
