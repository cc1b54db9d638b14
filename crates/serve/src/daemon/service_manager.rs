//! Notifies systemd of the daemon's state (sd_notify(3)).
//!
//! DECISION: the daemon writes to the socket itself, without a crate. The crates block while systemd does not
//! read, and the daemon has one thread. Here a full queue drops the notification, and the next one repeats
//! what matters.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

#[derive(Debug, thiserror::Error)]
enum NotifySocketError {
    #[error("the variable {SOCKET} is {0:?}, which is neither a path nor the name of an abstract socket")]
    Name(OsString),
    #[error("the service manager cannot be notified through {SOCKET}={name:?}: {error}")]
    Open { name: OsString, error: io::Error },
}

/// The manager that started the daemon; without one, each notification does nothing.
#[derive(Debug, Default)]
pub(super) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Time within which the manager expects a sign of life.
    watchdog: Option<Duration>,
    /// `STOPPING` was sent, after which no other state may follow.
    is_stopping: Cell<bool>,
}

impl ServiceManager {
    /// Reads the variables that a manager sets; one that cannot be used is logged and ignored.
    pub(super) fn of_environment() -> Self {
        Self::read(|name| std::env::var_os(name))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let Some(name) = variable(SOCKET).filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let socket = match connect(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!("cannot report the server's state to systemd: {error}");
                None
            }
        };
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        // The variables pass through a shell to its child, which is not the process that is watched.
        let is_watched = variable(WATCHDOG_PROCESS).is_none()
            || number(WATCHDOG_PROCESS) == Some(std::process::id().into());
        let watchdog = number(WATCHDOG).filter(|time| is_watched && *time > 0);
        Self { socket, watchdog: watchdog.map(Duration::from_micros), is_stopping: Cell::new(false) }
    }

    /// The daemon accepts requests; `status` is the line of `systemctl status`.
    pub(super) fn ready(&self, status: &str) {
        // A line break in it would begin another assignment.
        let status: String =
            status.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        self.send_state(&format!("READY=1\nSTATUS={status}"));
    }

    /// A reload begins; `ready` ends it.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send_state(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    pub(super) fn stopping(&self) {
        self.send_state("STOPPING=1");
        self.is_stopping.set(true);
    }

    /// Sends signs of life for as long as the thread that serves makes progress; never returns.
    pub(super) async fn keep_alive(&self) {
        let Some(within) = self.watchdog else {
            return std::future::pending().await;
        };
        // Half of the time, as sd_watchdog_enabled(3) recommends; a hostile one must not become a busy loop.
        let period = (within / 2).max(Duration::from_millis(10));
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(period).await;
        }
    }

    /// A reload may end while the daemon stops: the manager would take its `READY` for a recovery.
    fn send_state(&self, state: &str) {
        if !self.is_stopping.get() {
            self.send(state);
        }
    }

    fn send(&self, state: &str) {
        let Some((socket, manager)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), manager) {
            tracing::debug!("systemd did not accept {state:?}: {error}");
        }
    }
}

fn connect(name: &OsStr) -> Result<(UnixDatagram, SocketAddr), NotifySocketError> {
    let open = |error| NotifySocketError::Open { name: name.to_owned(), error };
    let address = match name.as_bytes() {
        [b'@', rest @ ..] if !rest.is_empty() => SocketAddr::from_abstract_name(rest).map_err(open)?,
        [b'/', _, ..] => SocketAddr::from_pathname(name).map_err(open)?,
        _ => return Err(NotifySocketError::Name(name.to_owned())),
    };
    let socket = UnixDatagram::unbound().map_err(open)?;
    socket.set_nonblocking(true).map_err(open)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests;
