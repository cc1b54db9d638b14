//! Finds the processes that an engine started, and kills them with it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use memchr::{memmem, memrchr};
use procfs::process::Process;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::kernel_text::read_kernel_bytes;
use crate::port_owner::{listener_on, socket_inodes};

/// The environment variable that holds the number of the engine's process group.
pub const CHILD_MARK: &str = "PLIMSOLL_CHILD";
/// Rounds of a sweep. A process that forks faster than it is killed is met again in the next round.
const ROUNDS: usize = 8;

/// Bytes of a folder that are read at once.
const LISTED: usize = 2048;
/// 52 numbers of 20 digits and a name of 64 bytes at most (fs/proc/array.c:do_task_stat @ Linux 6.12).
const LONGEST_STAT: usize = 2048;

/// A process of the machine, with the properties that show its ancestry.
#[derive(Debug)]
struct SeenProcess {
    pid: i32,
    parent: i32,
    group: i32,
    started: u64,
    /// A zombie holds nothing and cannot be killed.
    is_dead: bool,
}

/// A process at an earlier look: its number, the inode of its folder, and its start (ticks after boot).
type EarlierProcess = (i32, u64, u64);

/// The processes of the last look, in order.
static EARLIER: Mutex<Vec<EarlierProcess>> = Mutex::new(Vec::new());

/// Returns the processes that are alive and were started at `since` (ticks after boot) or later.
///
/// DECISION: a swap of models waits for this, and most processes are older than the engine. To read one takes
/// three system calls, so the starts of those that were seen before are kept. A folder of /proc keeps its
/// inode until its process is gone, and a later process with the same number gets another one
/// (fs/proc/base.c:proc_pid_make_inode @ Linux 6.12).
fn seen(since: u64) -> Vec<SeenProcess> {
    let mut earlier = EARLIER.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut now, mut found) = (Vec::with_capacity(earlier.len() + 16), Vec::new());
    for (pid, inode) in numbers() {
        let place = earlier.binary_search_by_key(&(pid, inode), |(pid, inode, _)| (*pid, *inode));
        let known = place.ok().and_then(|place| earlier.get(place)).filter(|(.., started)| *started < since);
        if let Some(known) = known {
            now.push(*known);
            continue;
        }
        let Some(stat) = stat(pid) else { continue };
        now.push((pid, inode, stat.started));
        if !stat.is_dead && stat.started >= since {
            found.push(stat);
        }
    }
    now.sort_unstable();
    *earlier = now;
    found
}

/// Looks at all processes, so that the next search reads only those that are started from now on.
pub fn remember() {
    seen(u64::MAX);
}

/// Returns the numbers of all processes.
pub fn all_processes() -> Vec<i32> {
    numbers().into_iter().map(|(pid, _)| pid).collect()
}

/// Returns the start of a process, in ticks after boot.
pub fn started(pid: i32) -> Option<u64> {
    stat(pid).map(|stat| stat.started)
}

/// Returns the process group of the engine whose mark a process inherited.
pub fn mark_of(pid: i32) -> Option<u32> {
    let environment = read_kernel_bytes(&format!("/proc/{pid}/environ")).unwrap_or_default();
    let mark = |entry: &[u8]| {
        str::from_utf8(entry.strip_prefix(CHILD_MARK.as_bytes())?).ok()?.strip_prefix('=')?.parse().ok()
    };
    environment.split(|byte| *byte == 0).find_map(mark)
}

/// Returns the numbers of all processes, and the inodes of their folders.
fn numbers() -> Vec<(i32, u64)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open("/proc", flags, Mode::empty()) else { return Vec::new() };
    let mut block = [const { MaybeUninit::uninit() }; LISTED];
    let mut entries = RawDir::new(folder, &mut block);
    let mut numbers = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        numbers.extend(number.map(|number| (number, entry.ino())));
    }
    numbers
}

fn stat(pid: i32) -> Option<SeenProcess> {
    let mut line = [0; LONGEST_STAT];
    // The kernel gives the whole line to the first read.
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut line)).ok()?;
    parse_stat(pid, line.get(..read)?)
}

/// Reads four of the fields of proc_pid_stat(5). `procfs` makes text and numbers of all 52, which takes
/// longer than the kernel takes to write them.
fn parse_stat(pid: i32, line: &[u8]) -> Option<SeenProcess> {
    // The name before the last bracket may hold brackets and blanks itself.
    let mut fields = line.get(memrchr(b')', line)? + 2..)?.split(|byte| *byte == b' ');
    let is_dead = matches!(fields.next()?, b"Z" | b"X");
    let mut number = |skipped| -> Option<i64> { str::from_utf8(fields.nth(skipped)?).ok()?.parse().ok() };
    let mut small = |skipped| number(skipped).and_then(|number| i32::try_from(number).ok());
    let (parent, group) = (small(0)?, small(0)?);
    Some(SeenProcess { pid, parent, group, started: u64::try_from(number(16)?).ok()?, is_dead })
}

/// Returns the processes of the engine whose group is `leader`, found by group, process tree and environment
/// mark.
fn of(leader: i32) -> Vec<SeenProcess> {
    // DECISION: a descendant can leave the process group (`setsid`), so three other ways find it. The engine
    // is a child subreaper, descendants inherit the variable `CHILD_MARK`, and a delegated cgroup (v2) is
    // killed at once. Without cgroups, a descendant with its own session and a cleared environment is not
    // found once the engine has died.

    // An older process than the engine does not descend from it. An unreaped leader still has its start time.
    let mut others = seen(stat(leader).map_or(0, |stat| stat.started));
    let mut found: Vec<SeenProcess> = Vec::new();
    let mut parents = BTreeSet::from([leader]);
    // Repeated until nothing is added: /proc is ordered by number, and a child's may be lower than its
    // parent's.
    loop {
        let (new, rest): (Vec<SeenProcess>, Vec<SeenProcess>) = others.into_iter().partition(|one| {
            one.pid == leader
                || one.group == leader
                || parents.contains(&one.parent)
                || is_marked(one.pid, leader)
        });
        others = rest;
        if new.is_empty() {
            return found;
        }
        parents.extend(new.iter().map(|one| one.pid));
        found.extend(new);
    }
}

fn is_marked(pid: i32, leader: i32) -> bool {
    // By hand: `procfs` takes twelve system calls for it.
    let environment = read_kernel_bytes(&format!("/proc/{pid}/environ")).unwrap_or_default();
    let mark = format!("{CHILD_MARK}={leader}");
    memmem::find_iter(&environment, mark.as_bytes()).any(|at| {
        let (before, after) = (environment.get(..at), environment.get(at + mark.len()..));
        before.is_some_and(|before| matches!(before.last(), None | Some(0)))
            && after.is_some_and(|after| matches!(after.first(), None | Some(0)))
    })
}

/// Returns the inodes of the sockets that the engine's processes hold.
pub fn sockets_of(leader: u32) -> BTreeSet<u64> {
    let Ok(leader) = i32::try_from(leader) else {
        return BTreeSet::new();
    };
    of(leader).iter().flat_map(sockets).collect()
}

/// Returns the processes of the engine.
pub fn processes_of(leader: u32) -> Vec<i32> {
    i32::try_from(leader).map_or(Vec::new(), |leader| of(leader).iter().map(|one| one.pid).collect())
}

/// Returns the process of the engine that listens on `port` of the loopback.
pub fn listener_of(leader: u32, port: u16) -> Option<i32> {
    let listener = listener_on(Ipv4Addr::LOCALHOST.into(), port).ok()??;
    let processes = of(i32::try_from(leader).ok()?);
    processes.iter().find(|one| sockets(one).contains(&listener.inode)).map(|one| one.pid)
}

/// True if a process has a child that was started at `since` (ticks after boot) or later.
pub fn has_child_since(parent: i32, since: u64) -> bool {
    seen(since).iter().any(|one| one.parent == parent)
}

fn sockets(one: &SeenProcess) -> Vec<u64> {
    Process::new(one.pid).map(|process| socket_inodes(&process)).unwrap_or_default()
}

/// Kills every process of the engine whose group is `leader`, including those in other sessions. The leader
/// itself may be a zombie; it must not have been reaped, so that its number is not reused. Returns false if
/// they forked faster than they were killed.
pub fn sweep(leader: u32) -> bool {
    let Ok(leader) = i32::try_from(leader) else { return true };
    (0..ROUNDS).any(|_| {
        let left = of(leader);
        left.iter().for_each(kill);
        left.is_empty()
    })
}

/// The descriptor is opened before the start time is read again, so that a reused number is never hit.
fn kill(one: &SeenProcess) {
    let Some(pid) = Pid::from_raw(one.pid) else {
        return;
    };
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if stat(one.pid).is_some_and(|stat| stat.started == one.started) {
        // An error means that it is gone, or belongs to another user now (sudo); both are out of our hands.
        let _ = pidfd_send_signal(descriptor, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
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
        while !of(leader).iter().any(|one| one.group == one.pid) {
            std::thread::yield_now();
        }
        sweep(u32::try_from(leader).unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(of(leader).is_empty());
    }

    #[test]
    fn a_process_whose_name_reads_like_a_row_of_another_is_found_and_killed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, leader) in [(") Z 1 1 (a", (1 << 30) + 1), ("a)\n1 (b) X 1", (1 << 30) + 2)] {
            let program = folder.path().join(name);
            std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
            let mut child = Command::new(&program)
                .arg("97")
                .env(CHILD_MARK, leader.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            assert_eq!(of(leader).len(), 1, "{name:?}");
            sweep(u32::try_from(leader).unwrap());
            assert!(!child.wait().unwrap().success());
        }
    }

    #[test]
    fn a_process_that_was_seen_before_is_found_until_it_ends() {
        let own = i32::try_from(std::process::id()).unwrap();
        let started = stat(own).unwrap().started;
        let is_seen = |pid, since| seen(since).iter().any(|one| one.pid == pid);
        // The second look takes the start time from the first one.
        for _ in 0..2 {
            remember();
            assert!(is_seen(own, 0) && is_seen(own, started) && !is_seen(own, started + 1));
        }
        let mut child = Command::new("sleep").arg("97").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        remember();
        assert!(is_seen(pid, started) && has_child_since(own, started));
        child.kill().unwrap();
        while is_seen(pid, started) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_line_of_the_kernel_is_read_as_procfs_reads_it() {
        use procfs::FromRead;

        let line = fs::read("/proc/self/stat").unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let by_procfs = procfs::process::Stat::from_read(line.as_slice()).unwrap();
        let read = parse_stat(own, &line).unwrap();
        assert_eq!((read.parent, read.group), (by_procfs.ppid, by_procfs.pgrp));
        assert!(read.started == by_procfs.starttime && !read.is_dead);
        // Cut anywhere, it has no start time or another one, and is no reason to panic.
        for length in 0..line.len() {
            let _ = parse_stat(own, &line[..length]);
        }
        for state in ["Z", "X", "S"] {
            let line = format!("7 (a) b) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20");
            let read = parse_stat(7, line.as_bytes()).unwrap();
            assert_eq!((read.parent, read.group, read.started), (1, 2, 4242));
            assert_eq!(read.is_dead, state != "S");
        }
        assert!(parse_stat(7, b"7 (a) S 1 2").is_none() && parse_stat(7, b"").is_none());
    }

    #[test]
    fn every_process_of_the_machine_is_listed() {
        let names = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
        let before: Vec<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
        let listed = numbers();
        for pid in before {
            // It may have ended in the meantime.
            assert!(listed.iter().any(|(one, _)| *one == pid) || stat(pid).is_none(), "{pid}");
        }
    }
}
