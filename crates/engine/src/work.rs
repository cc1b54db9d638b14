//! Detects whether a serving engine is busy, from the processor time, devices and connections of its
//! processes.

use std::path::Path;

use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process};

use super::address::EngineAddress;
use plimsoll_process::descendants;

/// Clock ticks that an engine without work may use in ten seconds: timers, and questions about its health.
/// One that computes on a card starts its kernels with little processor time.
const IDLE_TICKS: u64 = 10;
const IDLE_TICKS_WITH_CARD: u64 = 2;
/// Devices that compute nothing.
const NO_CARDS: [&str; 14] = [
    "console",
    "fd",
    "full",
    "hugepages",
    "kmsg",
    "mqueue",
    "null",
    "ptmx",
    "pts",
    "random",
    "shm",
    "tty",
    "urandom",
    "zero",
];

/// Work of an engine's processes so far.
#[derive(Clone, Copy, Debug)]
pub struct EngineWork {
    ticks: u64,
    reach: Reach,
}

impl EngineWork {
    /// `None` where the process that listens cannot be seen (a container, another machine) or waits for a
    /// disk.
    pub async fn now(address: &EngineAddress, group: u32) -> Option<Self> {
        let server = server_of(address, group).await?;
        // It reads files of all processes, which takes milliseconds.
        let read = move || {
            let each = descendants::processes_of(group).into_iter().map(ticks);
            Some(Self { ticks: each.sum::<Option<u64>>()?, reach: reach_of(server)? })
        };
        tokio::task::spawn_blocking(read).await.ok()?
    }

    /// True if nothing was done between this and `later`, some ten seconds after it. An engine that may wait
    /// for another machine proves nothing.
    pub fn rests_until(&self, later: &Self) -> bool {
        let idle = if later.reach.has_card { IDLE_TICKS_WITH_CARD } else { IDLE_TICKS };
        !later.reach.has_connection && later.ticks.saturating_sub(self.ticks) <= idle
    }
}

/// Where a process may have its work done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// A device is open that may compute.
    has_card: bool,
    /// It has made a connection itself (`--rpc`).
    has_connection: bool,
}

impl Reach {
    pub(super) fn is_any(self) -> bool {
        self.has_card || self.has_connection
    }
}

/// The process of the engine that listens at the address.
pub(super) async fn server_of(address: &EngineAddress, group: u32) -> Option<i32> {
    match address {
        EngineAddress::Port(port) => {
            let port = *port;
            // It reads descriptors of all processes, which takes milliseconds.
            tokio::task::spawn_blocking(move || descendants::listener_of(group, port)).await.ok()?
        }
        EngineAddress::Remote(_) => None,
        EngineAddress::Socket { path, .. } => {
            tokio::net::UnixStream::connect(path).await.ok()?.peer_cred().ok()?.pid()
        }
    }
}

pub(super) fn reach_of(pid: i32) -> Option<Reach> {
    let process = Process::new(pid).ok()?;
    let (mut sockets, mut has_card) = (Vec::new(), false);
    for descriptor in process.fd().ok()?.flatten() {
        match descriptor.target {
            FDTarget::Path(path) => has_card |= is_card(&path),
            FDTarget::Socket(inode) => sockets.push(inode),
            _ => {}
        }
    }
    let entries = [process.tcp(), process.tcp6()].into_iter().flatten().flatten();
    let own: Vec<TcpNetEntry> = entries.filter(|entry| sockets.contains(&entry.inode)).collect();
    let listens =
        |port| own.iter().any(|entry| entry.state == TcpState::Listen && entry.local_address.port() == port);
    let created =
        |entry: &TcpNetEntry| entry.state == TcpState::Established && !listens(entry.local_address.port());
    Some(Reach { has_card, has_connection: own.iter().any(created) })
}

/// Cards of all vendors are devices: `/dev/nvidia0`, `/dev/kfd`, `/dev/dri/renderD128`.
fn is_card(path: &Path) -> bool {
    let Ok(name) = path.strip_prefix("/dev") else { return false };
    let first = name.iter().next().and_then(|first| first.to_str()).unwrap_or_default();
    !NO_CARDS.contains(&first.trim_end_matches(|digit: char| digit.is_ascii_digit()))
}

/// Processor time of a process in clock ticks; `None` if it waits for a disk, which is work as well.
pub(super) fn ticks(pid: i32) -> Option<u64> {
    let process = Process::new(pid).ok()?;
    let mut threads = process.tasks().ok()?.flatten().filter_map(|task| task.stat().ok());
    if threads.any(|thread| thread.state == 'D') {
        return None;
    }
    let stat = process.stat().ok()?;
    Some(stat.utime + stat.stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_every_vendor_are_distinguished_from_terminals_and_files() {
        for card in ["nvidia0", "nvidiactl", "kfd", "dri/renderD128", "dxg", "davinci0"] {
            assert!(is_card(&Path::new("/dev").join(card)), "{card}");
        }
        for other in ["/dev/null", "/dev/pts/3", "/dev/tty1", "/dev/shm/x", "/home/dev/nvidia0", "nvidia0"] {
            assert!(!is_card(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn work_is_processor_time_and_a_connection_to_elsewhere_proves_nothing() {
        let work =
            |ticks, has_card, has_connection| EngineWork { ticks, reach: Reach { has_card, has_connection } };
        let before = work(100, false, false);
        for (later, rests) in [
            (work(110, false, false), true),
            (work(111, false, false), false),
            (work(102, true, false), true),
            (work(103, true, false), false),
            (work(100, false, true), false),
        ] {
            assert_eq!(before.rests_until(&later), rests, "{later:?}");
        }
    }

    #[tokio::test]
    async fn a_process_that_computes_is_distinguished_from_one_that_sleeps() {
        let group = std::process::id();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = EngineAddress::Port(listener.local_addr().unwrap().port());
        let ticks = async || EngineWork::now(&address, group).await.map(|work| work.ticks);
        let Some(before) = ticks().await else { return };
        // The reading itself computes.
        while ticks().await.unwrap() <= before + IDLE_TICKS {}
    }
}
