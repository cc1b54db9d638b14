//! Observes other processes: which one listens on a port, its descendants, and its private memory.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::port_owner::listener_on;
use plimsoll_base::Bytes;
use procfs::process::{FDTarget, all_processes};

/// Processes of one tree that are looked at.
const MOST: usize = 256;
/// Descriptors of one process that are looked at while the owner of a socket is sought.
const MOST_DESCRIPTORS: usize = 65_536;
/// A walk of the page tables that takes longer disturbs the process that is measured.
const LONG: Duration = Duration::from_millis(50);

/// A process, identified so that a later one with the same number is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredProcess {
    pub pid: u32,
    /// In clock ticks since the machine started.
    started: u64,
}

// DECISION: private memory is `Anonymous - LazyFree + Swap + Pss_Shmem` of `smaps_rollup`, which is exact.
// `VmRSS` lags by up to 32 pages per processor (Linux 6.2 and later); it is used only if the exact sum takes
// long.
/// Method of reading a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessGauge {
    Rollup,
    Counters,
}

impl MeasuredProcess {
    /// Returns the process with this number, unless it is a zombie.
    pub fn find(pid: u32) -> Option<Self> {
        let stat = proc_of(pid)?.stat().ok()?;
        let (started, alive) = (stat.starttime, !matches!(stat.state, 'Z' | 'X'));
        alive.then_some(Self { pid, started })
    }

    /// Returns the process that listens on this port of the loopback or of all addresses, where it may be
    /// seen.
    pub fn listening_on(port: u16) -> Option<Self> {
        // A server on `::` takes IPv4 clients too (ipv6(7): IPV6_V6ONLY), so both families are searched.
        let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let mut listeners = addresses.into_iter().filter_map(|address| listener_on(address, port).ok()?);
        let listening = listeners.next()?.inode;
        let holds = |pid: &u32| {
            let process = proc_of(*pid).and_then(|process| process.fd().ok());
            let descriptors = process.into_iter().flatten().take(MOST_DESCRIPTORS).flatten();
            descriptors
                .map(|descriptor| descriptor.target)
                .any(|target| matches!(target, FDTarget::Socket(inode) if inode == listening))
        };
        all().find(holds).and_then(Self::find)
    }

    pub fn lives(&self) -> bool {
        Self::find(self.pid).as_ref() == Some(self)
    }

    /// It and everything that descends from it.
    pub fn tree(&self) -> Vec<u32> {
        tree(self.pid)
    }

    /// The way to read this tree: exact unless that takes long.
    pub fn gauge(&self) -> ProcessGauge {
        let start = Instant::now();
        let read = self.occupied(ProcessGauge::Rollup);
        if read.is_some() && start.elapsed() < LONG { ProcessGauge::Rollup } else { ProcessGauge::Counters }
    }

    /// The private memory of the tree; `None` once it is gone or may not be seen.
    pub fn occupied(&self, gauge: ProcessGauge) -> Option<Bytes> {
        let occupied = |pid: u32| match gauge {
            ProcessGauge::Rollup => rollup(pid),
            ProcessGauge::Counters => counters(pid),
        };
        // The number may have gone to another process while it was read.
        let first = occupied(self.pid).filter(|_| self.lives())?;
        let others = self.tree().into_iter().skip(1).filter_map(occupied);
        Some(first + others.sum())
    }
}

/// The process and its descendants, parents first.
pub fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        // The kernel lists children by the thread that forked them (`/proc/PID/task/TID/children`).
        let tasks = proc_of(parent).and_then(|process| process.tasks().ok());
        for task in tasks.into_iter().flatten().flatten().take(MOST) {
            found.extend(task.children().unwrap_or_default());
            if found.len() > MOST {
                found.truncate(MOST);
                return found;
            }
        }
    }
    found
}

/// Every process that may be seen.
pub fn all() -> impl Iterator<Item = u32> {
    let processes = all_processes().into_iter().flatten().flatten();
    processes.filter_map(|process| u32::try_from(process.pid).ok())
}

pub fn command_line(pid: u32) -> Vec<String> {
    // By hand: `procfs` leaves empty arguments out and fails where one is no UTF-8.
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    let words = line.split(|byte| *byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The name of a process, without blanks around it.
pub fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

fn proc_of(pid: u32) -> Option<procfs::process::Process> {
    procfs::process::Process::new(i32::try_from(pid).ok()?).ok()
}

fn rollup(pid: u32) -> Option<Bytes> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    // Older kernels have no `Pss_Shmem`; there shared memory is left out.
    let sum =
        field(&text, "Anonymous:")? + field(&text, "Swap:")? + field(&text, "Pss_Shmem:").unwrap_or_default();
    Some(sum.saturating_sub(field(&text, "LazyFree:").unwrap_or_default()))
}

fn counters(pid: u32) -> Option<Bytes> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
    let all = ["RssAnon:", "RssShmem:", "VmSwap:"].map(|name| field(&text, name).unwrap_or_default());
    // `RssAnon` is there since Linux 4.5; without it the other two would be too little.
    field(&text, "RssAnon:").map(|_| all.into_iter().sum())
}

pub(super) fn field(text: &str, name: &str) -> Option<Bytes> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok().map(Bytes::kib)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn listening_process_is_found_by_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = MeasuredProcess::listening_on(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(found.pid, std::process::id());
        assert!(found.lives() && found.tree()[0] == found.pid);
    }

    /// `dd` reads one block of 64 MiB and is stuck in writing it: nothing else of it changes meanwhile.
    #[test]
    fn resident_memory_is_measured_to_the_page() {
        let mut child = Command::new("dd")
            .args(["if=/dev/zero", "bs=64M", "count=1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        let process = MeasuredProcess::find(child.id()).unwrap();
        let occupied =
            [ProcessGauge::Rollup, ProcessGauge::Counters].map(|gauge| process.occupied(gauge).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        for occupied in occupied {
            assert!(occupied >= Bytes::mib(64) && occupied < Bytes::mib(72), "{occupied}");
        }
    }

    #[test]
    fn a_process_that_is_gone_holds_nothing() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = MeasuredProcess::find(child.id()).unwrap();
        assert!(tree(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.lives() && process.occupied(ProcessGauge::Rollup).is_none());
    }
}
