//! Runs a server for a benchmark: starts it on a free port, waits until it is ready, reads its figures from
//! /proc, and stops it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Connection;
use crate::requests;

const START_PATIENCE: Duration = Duration::from_secs(10);
const STOP_PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_micros(200);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error("cannot start {program}: {source}")]
    Start { program: PathBuf, source: std::io::Error },
    #[error("{program} did not answer GET /health on {address} within {START_PATIENCE:?}")]
    NeverReady { program: PathBuf, address: SocketAddr },
    #[error("no free port on loopback: {0}")]
    FreePort(std::io::Error),
    #[error("cannot write {path}: {source}")]
    WriteConfig { path: PathBuf, source: std::io::Error },
}

/// A running server, ended with this value.
#[derive(Debug)]
pub(crate) struct Server {
    program: PathBuf,
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn spawn(
        program: &Path,
        arguments: &[String],
        address: SocketAddr,
    ) -> Result<Self, ProcessError> {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| ProcessError::Start { program: program.to_owned(), source })?;
        Ok(Self { program: program.to_owned(), child, address })
    }

    /// Waits for the first 200 of /health and says how long it took.
    pub(crate) fn wait_ready(&mut self) -> Result<Duration, ProcessError> {
        let start = Instant::now();
        let request = requests::get("/health");
        while start.elapsed() < START_PATIENCE && self.child.try_wait().is_ok_and(|end| end.is_none()) {
            let reply = Connection::open(self.address).and_then(|mut line| line.exchange(&request));
            if reply.is_ok_and(|(reply, _)| reply.status == 200) {
                return Ok(start.elapsed());
            }
            thread::sleep(POLL);
        }
        Err(ProcessError::NeverReady { program: self.program.clone(), address: self.address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process and its children that run the same program: workers, not engines.
    pub(crate) fn family(&self) -> Vec<u32> {
        let name = command_name(self.pid());
        let children =
            processes().filter(|&pid| parent(pid) == Some(self.pid()) && command_name(pid) == name);
        std::iter::once(self.pid()).chain(children).collect()
    }
}

impl Drop for Server {
    /// Asks first: a master that is killed leaves its workers behind.
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        let start = Instant::now();
        while start.elapsed() < STOP_PATIENCE {
            if !self.child.try_wait().is_ok_and(|end| end.is_none()) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_address() -> Result<SocketAddr, ProcessError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(ProcessError::FreePort)
}

/// Largest resident size so far, in KiB, summed over the processes.
pub(crate) fn peak_kib(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|&pid| status_kib(pid, "VmHWM:")).sum()
}

/// Resident size now, in KiB, summed over the processes.
pub(crate) fn resident_kib(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|&pid| status_kib(pid, "VmRSS:")).sum()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold blanks and parentheses; state and parent follow it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn command_name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn status_kib(pid: u32, key: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_found() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }

    #[test]
    fn the_peak_remembers_memory_that_was_given_back() {
        let me = [std::process::id()];
        let block = vec![1_u8; 32 << 20];
        assert!(resident_kib(&me) > 32 << 10, "{} bytes held", block.len());
        drop(block);
        assert!(peak_kib(&me) > 32 << 10);
    }

    #[test]
    fn a_server_that_ends_at_once_is_never_ready() {
        let address = free_address().unwrap();
        let mut server = Server::spawn(Path::new("/bin/true"), &[], address).unwrap();
        assert!(matches!(server.wait_ready(), Err(ProcessError::NeverReady { .. })));
    }
}
