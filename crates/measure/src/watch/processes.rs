//! Reads the memory of a process tree, or of the largest processes of the machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_base::Order;
use plimsoll_process::reading::{all, name, tree};

use super::machine::RereadFile;
use crate::record::{Figure, Group, Look, Pace, Unit};

/// Number of processes followed at a time.
const MOST: usize = 12;
/// Minimum interval between searches, of a tree and of the machine.
const TREE_EVERY: Duration = Duration::from_secs(1);
const ALL_EVERY: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Processes {
    root: Option<u32>,
    loadavg: RereadFile,
    page_kib: u64,
    followed: BTreeMap<u32, WatchedProcess>,
    searched: Option<(Instant, String)>,
}

/// A followed process. Its file stays open, so that a reused pid is not mistaken for it.
#[derive(Debug)]
struct WatchedProcess {
    pid: u32,
    subject: String,
    statm: RereadFile,
    looks: u32,
}

impl Processes {
    /// Follows the tree under `root`, or the largest processes of the machine.
    pub(super) fn new(root: Option<u32>) -> Self {
        Self {
            root,
            loadavg: RereadFile::open("/proc/loadavg"),
            page_kib: u64::try_from(rustix::param::page_size() >> 10).unwrap_or(4),
            followed: BTreeMap::new(),
            searched: None,
        }
    }

    /// Also follows these processes, which hold memory on a card.
    pub(super) fn also(&mut self, pids: impl Iterator<Item = u32>) {
        // Twice the limit: processes on cards come in addition to the largest ones.
        for pid in pids {
            if self.root.is_none() && self.followed.len() < 2 * MOST {
                self.followed.entry(pid).or_insert_with(|| WatchedProcess::new(pid));
            }
        }
    }

    #[cfg(test)]
    fn follows(&self, pid: u32) -> bool {
        self.followed.contains_key(&pid)
    }

    pub(super) fn look(&mut self, look: &mut Look) {
        // The processes are searched for again only after the kernel has assigned a new PID (the last field
        // of `/proc/loadavg`).
        if self.is_due() {
            self.search();
        }
        let page_kib = self.page_kib;
        self.followed.retain(|_, process| process.look(page_kib, look));
    }

    fn is_due(&mut self) -> bool {
        // Searching `/proc` takes milliseconds on a busy machine; one line of loadavg takes microseconds.
        let last = self.loadavg.line().split_ascii_whitespace().next_back().unwrap_or_default();
        let every = if self.root.is_some() { TREE_EVERY } else { ALL_EVERY };
        let due =
            self.searched.as_ref().is_none_or(|(when, before)| before != last && when.elapsed() >= every);
        if due {
            self.searched = Some((Instant::now(), last.to_owned()));
        }
        due
    }

    fn search(&mut self) {
        let found: Vec<u32> = match self.root {
            Some(root) => tree(root),
            None => all().collect(),
        };
        let mut sized: Vec<(u64, u32)> = found
            .into_iter()
            .filter(|pid| !self.followed.contains_key(pid))
            .filter_map(|pid| Some((resident(&mut RereadFile::open(&format!("/proc/{pid}/statm")))?.0, pid)))
            .collect();
        // The largest first, because there may be room for a few only.
        sized.order_by_key(|(pages, _)| std::cmp::Reverse(*pages));
        // A tree always has room for one more, so that a long-running child started late is still followed.
        let room = MOST.saturating_sub(self.followed.len());
        for (_, pid) in sized.into_iter().take(room.max(usize::from(self.root.is_some()))) {
            self.followed.insert(pid, WatchedProcess::new(pid));
        }
    }
}

impl WatchedProcess {
    fn new(pid: u32) -> Self {
        Self { pid, subject: subject(pid), statm: RereadFile::open(&format!("/proc/{pid}/statm")), looks: 0 }
    }

    /// Adds the figures; false if the process has ended.
    fn look(&mut self, page_kib: u64, look: &mut Look) -> bool {
        let Some((resident, shared)) = resident(&mut self.statm) else {
            return false;
        };
        // A new process carries its parent's name until exec, so the name is read again at growing intervals.
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_power_of_two() {
            self.subject = subject(self.pid);
        }
        let figure = |what: &str| Figure::new(Group::Process, Unit::Kib, self.subject.clone(), what);
        look.push(figure("resident"), Pace::Fast, resident * page_kib);
        look.push(figure("private"), Pace::Slow, resident.saturating_sub(shared) * page_kib);
        true
    }
}

/// Process label: pid and name.
fn subject(pid: u32) -> String {
    format!("{pid} {}", name(pid).unwrap_or_default())
}

/// Resident pages, and those among them that are shared.
fn resident(statm: &mut RereadFile) -> Option<(u64, u64)> {
    let mut fields = statm.line().split_ascii_whitespace().skip(1);
    let resident = fields.next()?.parse().ok()?;
    let shared = fields.next()?.parse().ok()?;
    // A zombie has no resident pages, and its statm stays readable until it is reaped.
    (resident > 0).then_some((resident, shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_tree_is_followed_with_those_that_come_and_without_those_that_go() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let mut processes = Processes::new(Some(std::process::id()));
        let mut look = Look::default();
        processes.look(&mut look);
        assert!(processes.follows(std::process::id()) && processes.follows(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        processes.look(&mut look);
        assert!(!processes.follows(child.id()));
    }
}
