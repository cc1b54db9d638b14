//! Awaits the end of a running child process, and sends signals to its process group.
//!
//! Dropping the handle kills the group.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

use plimsoll_base::Exit;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::spawn::{LaunchError, Launcher, Spawned, pid_of};

#[derive(Debug)]
pub struct ProcessHandle {
    /// None only once it was handed over to be buried.
    child: Option<std::process::Child>,
    group: Pid,
    id: u32,
    pidfd: AsyncFd<OwnedFd>,
    launcher: Launcher,
}

impl ProcessHandle {
    pub(crate) fn new(spawned: Spawned, launcher: Launcher) -> Result<Self, LaunchError> {
        let Spawned { child, pidfd } = spawned;
        let id = child.id();
        #[expect(
            deprecated,
            reason = "the call is unsound only if another thread can close the descriptor, which OwnedFd \
                prevents"
        )]
        let watched = AsyncFd::with_interest(pidfd, Interest::READABLE);
        match watched {
            Ok(pidfd) => Ok(Self { id, group: pid_of(&child), child: Some(child), pidfd, launcher }),
            Err(cause) => {
                launcher.abandon(child);
                Err(LaunchError::Watch { pid: id, cause })
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    /// Takes the pipes, which can be taken only once; stdin exists only for a process that reads it.
    pub fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        match &mut self.child {
            Some(child) => (child.stdin.take(), child.stdout.take(), child.stderr.take()),
            None => (None, None, None),
        }
    }

    /// Waits until the leader has ended; it stays unreaped. May be cancelled.
    pub async fn ended(&self) {
        // An error here means that the reactor is gone; then nothing can be waited for.
        if let Ok(mut ready) = self.pidfd.readable().await {
            // Kept ready: the future may be cancelled and asked again.
            ready.retain_ready();
        }
    }

    /// Signals the whole group. It is safe until `bury`: the unreaped leader keeps the number.
    pub fn signal(&self, signal: Signal) {
        // ESRCH is the only failure: no process of the group is left.
        let _ = kill_process_group(self.group, signal);
    }

    /// Sweeps the group, reaps the leader and returns its true wait status.
    pub async fn bury(mut self) -> io::Result<Exit> {
        let Some(child) = self.child.take() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let status = self.launcher.bury(child).await?;
        Ok(exit_of(status))
    }
}

impl Drop for ProcessHandle {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.launcher.abandon(child);
        }
    }
}

fn exit_of(status: std::process::ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}
