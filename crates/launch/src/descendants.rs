//! Descendants of an engine (processes that it started), and how they are killed with it.
//!
//! DECISION: killing the process group is not enough, because a program may open its own session (`setsid`),
//! as daemons and some workers do. There are three ways to find these processes. (1) The trampoline, a small
//! program that runs before the engine, makes the engine a child subreaper, so orphans stay in its process
//! tree while it lives. (2) The trampoline sets the environment variable [`CHILD_MARK`] to the engine's PID;
//! descendants inherit it, and it survives the engine. (3) If the daemon's cgroup (v2) is delegated, each
//! engine gets its own cgroup, which no process can leave and which `cgroup.kill` ends at once. One case
//! remains without cgroups: a program that has its own session and a cleared environment, and outlives an
//! engine that died by itself.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use memchr::memmem::Finder;
use procfs::process::{Process, all_processes};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::port_owner::socket_inodes;

/// The environment variable that holds the number of the engine's process group.
pub const CHILD_MARK: &str = "PLIMSOLL_CHILD";
/// Rounds of a sweep. A process that forks faster than it is killed is met again in the next round.
const ROUNDS: usize = 8;

/// A process of the machine, with the properties that show its ancestry.
#[derive(Debug)]
struct SeenProcess {
    process: Process,
    parent: i32,
    group: i32,
    started: u64,
}

fn seen() -> Vec<SeenProcess> {
    let processes = all_processes().into_iter().flatten().flatten();
    processes
        .filter_map(|process| {
            let stat = process.stat().ok()?;
            // A zombie holds nothing and cannot be killed.
            let alive = !matches!(stat.state, 'Z' | 'X');
            let (parent, group, started) = (stat.ppid, stat.pgrp, stat.starttime);
            alive.then_some(SeenProcess { process, parent, group, started })
        })
        .collect()
}

/// Returns the processes of the engine whose group is `leader`, found by group, process tree and environment
/// mark.
fn of(leader: i32) -> Vec<SeenProcess> {
    // Nothing that was there before the engine descends from it, and reading the environment of every process
    // of a machine is what a sweep would spend its time on.
    let since = Process::new(leader).and_then(|process| process.stat()).map_or(0, |stat| stat.starttime);
    let mark = format!("\0{CHILD_MARK}={leader}\0");
    let mark = Finder::new(&mark);
    let mut others = seen();
    let mut found: Vec<SeenProcess> = Vec::new();
    let mut parents = BTreeSet::from([leader]);
    // Repeated until nothing is added: /proc is ordered by number, and a child's may be lower than its
    // parent's.
    loop {
        let (new, rest): (Vec<SeenProcess>, Vec<SeenProcess>) = others.into_iter().partition(|one| {
            let pid = one.process.pid;
            let is_in_tree = pid == leader || one.group == leader || parents.contains(&one.parent);
            is_in_tree || (one.started >= since && is_marked(one, &mark))
        });
        others = rest;
        if new.is_empty() {
            return found;
        }
        parents.extend(new.iter().map(|one| one.process.pid));
        found.extend(new);
    }
}

/// Says whether `mark`, which has a zero byte at each end, is a variable of the process.
fn is_marked(one: &SeenProcess, mark: &Finder<'_>) -> bool {
    let mut environment = vec![0];
    let file = one.process.open_relative("environ");
    file.is_ok_and(|mut file| file.read_to_end(&mut environment).is_ok()) && mark.find(&environment).is_some()
}

/// Returns the inodes of the sockets that the engine's processes hold.
pub(super) fn sockets_of(leader: u32) -> BTreeSet<u64> {
    let Ok(leader) = i32::try_from(leader) else {
        return BTreeSet::new();
    };
    of(leader).iter().flat_map(|one| socket_inodes(&one.process)).collect()
}

/// Kills every process of the engine whose group is `leader`, including those in other sessions. The leader
/// itself may be a zombie; it must not have been reaped, so that its number is not reused.
pub fn sweep(leader: u32) {
    let Ok(leader) = i32::try_from(leader) else { return };
    for _ in 0..ROUNDS {
        let left = of(leader);
        if left.is_empty() {
            return;
        }
        left.iter().for_each(kill);
    }
}

/// The descriptor is opened before the start time is read again, so that a reused number is never hit.
fn kill(one: &SeenProcess) {
    let Some(pid) = Pid::from_raw(one.process.pid) else {
        return;
    };
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let same = Process::new(one.process.pid).and_then(|process| process.stat());
    if same.is_ok_and(|stat| stat.starttime == one.started) {
        // An error means that it is gone, or belongs to another user now (sudo); both are out of our hands.
        let _ = pidfd_send_signal(descriptor, Signal::KILL);
    }
}

/// The place where version 2 is mounted: beside version 1 it is `/sys/fs/cgroup/unified`.
fn cgroups() -> Option<PathBuf> {
    let mounts = Process::myself().and_then(|process| process.mountinfo()).ok()?;
    let unified = mounts.into_iter().find(|mount| mount.fs_type == "cgroup2")?;
    Some(unified.mount_point)
}

/// The cgroup of one engine, if the daemon may create one.
#[derive(Debug)]
pub(super) struct ChildCgroup(PathBuf);

impl ChildCgroup {
    /// Moves the process `leader` into a new cgroup below the daemon's; `None` if the daemon's is not
    /// delegated.
    pub(super) fn enclose(leader: u32) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        // `0::` is the line of cgroup v2; hierarchies of v1 have other numbers (cgroups(7)).
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Self::enclose_in(&cgroups()?.join(own), leader)
    }

    fn enclose_in(parent: &Path, leader: u32) -> Option<Self> {
        // Outside a cgroup v2 file system the folder could be made but not killed.
        if !parent.join("cgroup.kill").exists() {
            return None;
        }
        let path = parent.join(format!("plimsoll-{leader}"));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        fs::write(group.0.join("cgroup.procs"), leader.to_string()).ok()?;
        Some(group)
    }

    pub(super) fn kill(&self) {
        // Since Linux 5.14; it also reaches a process that is forking at this moment.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }
}

/// The kernel refuses to remove a cgroup that still has processes; the next end of an engine does not retry
/// it.
impl Drop for ChildCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_marked_process_in_a_session_of_its_own_is_found_and_killed() {
        // A number beyond `kernel.pid_max`, so that no group and no tree has it.
        let leader = 1 << 30;
        let mut child = Command::new("setsid")
            .args(["sleep", "97"])
            .env(CHILD_MARK, leader.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !of(leader).iter().any(|one| one.group == one.process.pid) {
            std::thread::yield_now();
        }
        sweep(u32::try_from(leader).unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(of(leader).is_empty());
    }

    #[test]
    fn a_process_without_session_and_environment_does_not_leave_its_cgroup() {
        let Some(root) = cgroups() else { return };
        let delegated = root.join(format!("plimsoll-test-{}", std::process::id()));
        if fs::create_dir(&delegated).is_err() {
            // Not root, and no folder was delegated to this user.
            return;
        }
        // Waits until it is enclosed, as the trampoline is long in being loaded.
        let mut child = Command::new("sh")
            .args(["-c", "read go; env -i setsid sleep 97 & sleep 1000"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let group = ChildCgroup::enclose_in(&delegated, child.id()).unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\n").unwrap();
        let members = || fs::read_to_string(group.0.join("cgroup.procs")).unwrap_or_default();
        while members().lines().count() < 3 {
            std::thread::yield_now();
        }
        group.kill();
        child.wait().unwrap();
        while !members().is_empty() {
            std::thread::yield_now();
        }
        let made = group.0.clone();
        drop(group);
        assert!(!made.exists());
        fs::remove_dir(delegated).unwrap();
    }

    #[test]
    fn no_cgroup_is_made_in_a_folder_that_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ChildCgroup::enclose_in(folder.path(), 1).is_none());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
