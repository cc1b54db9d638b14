//! Puts each engine in a cgroup (version 2), which kills all of its processes at once and limits their host
//! memory.
//!
//! The daemon creates these groups below its own group. The kernel enforces the memory limit only if the
//! daemon's group was delegated to it. Otherwise engines run without the limit.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};

use plimsoll_base::Bytes;
use procfs::process::Process;

use crate::kernel_text::read_kernel_text;

/// The group that the daemon enters, so that its own group holds no process.
const DAEMON: &str = "plimsoll-daemon";
/// Times that processes are moved there: one may be forked in between.
const ROUNDS: usize = 4;

/// The place where version 2 is mounted: beside version 1 it is `/sys/fs/cgroup/unified`.
fn mount() -> Option<&'static Path> {
    static MOUNT: OnceLock<Option<PathBuf>> = OnceLock::new();
    MOUNT.get_or_init(|| cgroup_mount(&fs::read("/proc/self/mountinfo").ok()?)).as_deref()
}

/// The same from the bytes of a mount table (proc_pid_mountinfo(5)).
pub(super) fn cgroup_mount(mounts: &[u8]) -> Option<PathBuf> {
    // By hand: `procfs` refuses the whole table if one name is not UTF-8, and any user may mount a FUSE file
    // system at such a name.
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let place = fields.nth(4)?;
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (kind == b"cgroup2").then(|| PathBuf::from(OsStr::from_bytes(place)))
    })
}

/// The group that the daemon was started in.
pub(crate) fn home() -> Option<PathBuf> {
    let own = read_kernel_text("/proc/self/cgroup")?;
    // `0::` is the line of cgroup v2; hierarchies of v1 have other numbers (cgroups(7)).
    let own = mount()?.join(own.lines().find_map(|line| line.strip_prefix("0::/"))?);
    let has_moved = own.file_name() == Some(OsStr::new(DAEMON));
    Some(if has_moved { own.parent()?.to_owned() } else { own })
}

/// Reasons why the kernel does not bound the memory of engines.
#[derive(Debug, thiserror::Error)]
enum UnboundedError {
    #[error("this process cannot make a cgroup (version 2) for each engine")]
    NoGroup,
    #[error("this process's cgroup has no memory controller")]
    NoController,
    #[error(
        "this process's cgroup contains process {0}, which it did not start; run it as a service with \
            `Delegate=yes`"
    )]
    Shared(u32),
    #[error("this process's cgroup is not delegated to it ({0})")]
    NotDelegated(#[from] io::Error),
}

/// The cgroup of one engine, if the daemon may create one.
#[derive(Debug)]
pub(crate) struct EngineCgroup(PathBuf);

impl EngineCgroup {
    /// Moves the process `leader` into a new cgroup, bounded to `memory` where the kernel does that; `None`
    /// if no group can be made.
    pub(crate) fn enclose(leader: u32, memory: Option<Bytes>) -> Option<Self> {
        let group = home().and_then(|home| Self::enclose_in(&home, leader, memory));
        if group.is_none() && memory.is_some() {
            notify_once(&UnboundedError::NoGroup);
        }
        group
    }

    fn enclose_in(home: &Path, leader: u32, memory: Option<Bytes>) -> Option<Self> {
        // Outside a cgroup v2 file system the folder could be made but not killed.
        if !home.join("cgroup.kill").exists() {
            return None;
        }
        let delegated = memory.map(|_| take_memory_controller(home, std::process::id()));
        let is_bounded = delegated.is_some_and(|delegated| delegated.inspect_err(notify_once).is_ok());
        let path = home.join(format!("plimsoll-{leader}"));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        // Before the engine enters, so that all of its memory counts.
        if let Some(memory) = memory.filter(|_| is_bounded) {
            group.bound(memory).unwrap_or_else(|why| notify_once(&why.into()));
        }
        fs::write(group.0.join("cgroup.procs"), leader.to_string()).ok()?;
        Some(group)
    }

    /// The kernel ends the whole engine when its memory would pass this. Page cache counts, and is given up
    /// before.
    pub(crate) fn bound(&self, memory: Bytes) -> io::Result<()> {
        fs::write(self.0.join("memory.max"), memory.get().to_string())?;
        // One process less would leave an engine that hangs.
        fs::write(self.0.join("memory.oom.group"), "1")
    }

    pub(crate) fn kill(&self) {
        // Since Linux 5.14; it also reaches a process that is forking at this moment.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }
}

/// The kernel refuses to remove a cgroup that still has processes; the next end of an engine does not retry
/// it.
impl Drop for EngineCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

// DECISION: a group hands its controllers down only while it holds no process itself (cgroups(7), "no
// internal processes"), so the daemon moves into a group of its own below. It moves itself and its helpers,
// and nothing else: a shell or a service in the same group shows that the group is not the daemon's.
/// Makes the memory controller work in groups below `home`.
fn take_memory_controller(home: &Path, daemon: u32) -> Result<(), UnboundedError> {
    let names_memory = |file: &str| -> io::Result<bool> {
        Ok(fs::read_to_string(home.join(file))?.split_whitespace().any(|word| word == "memory"))
    };
    if names_memory("cgroup.subtree_control")? {
        return Ok(());
    }
    if !names_memory("cgroup.controllers")? {
        return Err(UnboundedError::NoController);
    }
    let mut refused = Ok(());
    for _ in 0..ROUNDS {
        let members = fs::read_to_string(home.join("cgroup.procs"))?;
        let members: Vec<u32> = members.lines().filter_map(|line| line.parse().ok()).collect();
        let is_own = |pid: u32| pid == daemon || parent_of(pid) == Some(daemon);
        if let Some(other) = members.iter().find(|pid| !is_own(**pid)) {
            return Err(UnboundedError::Shared(*other));
        }
        move_into(&home.join(DAEMON), &members)?;
        refused = fs::write(home.join("cgroup.subtree_control"), "+memory");
        if refused.is_ok() {
            break;
        }
    }
    Ok(refused?)
}

/// The parent of a process; `None` for one that is gone or not seen from here.
fn parent_of(pid: u32) -> Option<u32> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    u32::try_from(process.stat().ok()?.ppid).ok().filter(|parent| *parent > 0)
}

fn move_into(group: &Path, members: &[u32]) -> io::Result<()> {
    // It is there if the daemon was started in the same group before.
    if !members.is_empty() && !group.exists() {
        fs::create_dir(group)?;
    }
    members.iter().try_for_each(|pid| fs::write(group.join("cgroup.procs"), pid.to_string()))
}

/// Logs it once; it is the same for every engine.
fn notify_once(why: &UnboundedError) {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| tracing::info!("engines run without a limit on host memory: {why}"));
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Files that look like a cgroup which was delegated, with these members.
    fn delegated(controllers: &str, members: &[u32]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let members: String = members.iter().map(|pid| format!("{pid}\n")).collect();
        for (file, text) in [
            ("cgroup.kill", ""),
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", ""),
            ("cgroup.procs", members.as_str()),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        folder
    }

    fn read(folder: &Path, file: &str) -> String {
        fs::read_to_string(folder.join(file)).unwrap_or_default()
    }

    #[test]
    fn an_engine_is_bounded_where_the_group_is_the_daemons_own() {
        let own = std::process::id();
        let mut helper = Command::new("sleep").arg("97").spawn().unwrap();
        let home = delegated("cpu memory pids\n", &[own, helper.id()]);
        let group = EngineCgroup::enclose_in(home.path(), 42, Some(Bytes::gib(3))).unwrap();
        helper.kill().unwrap();
        helper.wait().unwrap();
        assert_eq!(read(&group.0, "memory.max"), (3_u64 << 30).to_string());
        assert_eq!(
            (read(&group.0, "memory.oom.group"), read(&group.0, "cgroup.procs")),
            ("1".into(), "42".into())
        );
        assert_eq!(read(home.path(), "cgroup.subtree_control"), "+memory");
        assert_eq!(
            read(&home.path().join(DAEMON), "cgroup.procs"),
            helper.id().to_string(),
            "the last to move"
        );
        group.bound(Bytes::gib(4)).unwrap();
        assert_eq!(read(&group.0, "memory.max"), (4_u64 << 30).to_string());
        // A second engine finds the controller at work, and nothing moves.
        fs::write(home.path().join("cgroup.subtree_control"), "memory\n").unwrap();
        fs::write(home.path().join("cgroup.procs"), "1\n").unwrap();
        let second = EngineCgroup::enclose_in(home.path(), 43, Some(Bytes::gib(1))).unwrap();
        assert_eq!(read(&second.0, "memory.max"), (1_u64 << 30).to_string());
    }

    #[test]
    fn an_engine_without_a_bound_changes_nothing_of_the_group() {
        let home = delegated("memory\n", &[std::process::id()]);
        let group = EngineCgroup::enclose_in(home.path(), 42, None).unwrap();
        assert!(!group.0.join("memory.max").exists() && !home.path().join(DAEMON).exists());
        assert_eq!(read(home.path(), "cgroup.subtree_control"), "");
    }

    #[test]
    fn engine_in_a_foreign_or_uncontrolled_cgroup_runs_without_a_limit() {
        let own = std::process::id();
        for (controllers, members, cause) in [
            ("cpu pids\n", vec![own], "no memory controller"),
            ("memory\n", vec![own, 1], "contains process 1"),
            ("memory\n", vec![own, u32::MAX], "contains process 4294967295"),
            // A process of another PID namespace.
            ("memory\n", vec![0, own], "contains process 0"),
        ] {
            let home = delegated(controllers, &members);
            let error = take_memory_controller(home.path(), own).unwrap_err();
            assert!(error.to_string().contains(cause), "{error}");
            let group = EngineCgroup::enclose_in(home.path(), 42, Some(Bytes::gib(1))).unwrap();
            assert!(!group.0.join("memory.max").exists() && !home.path().join(DAEMON).exists(), "{cause}");
            assert_eq!(read(&group.0, "cgroup.procs"), "42", "it is enclosed all the same");
        }
    }

    #[test]
    fn damaged_files_of_a_group_bound_nothing_and_break_nothing() {
        for hostile in ["\0\0", "memorymemory", "-memory", "\u{fffd}", &"x ".repeat(100_000)] {
            let home = delegated(hostile, &[]);
            assert!(take_memory_controller(home.path(), 1).is_err(), "{hostile:.20}");
        }
        let home = tempfile::tempdir().unwrap();
        assert!(matches!(take_memory_controller(home.path(), 1), Err(UnboundedError::NotDelegated(_))));
        // Words that are no numbers are no members.
        let home = delegated("memory", &[]);
        fs::write(home.path().join("cgroup.procs"), "-1\n99999999999999\nx\n").unwrap();
        assert!(take_memory_controller(home.path(), 1).is_ok() && !home.path().join(DAEMON).exists());
    }

    #[test]
    fn a_mount_whose_name_is_no_text_hides_no_cgroups() {
        let mounts = b"90 1 0:50 / /home/u/\xff\xfe rw - fuse.cgroup2 x rw\n29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup_mount(mounts), Some("/sys/fs/cgroup".into()));
        assert_eq!(cgroup_mount(b"29 23 0:26 / /a rw - cgroup x rw\n- cgroup2\n"), None);
    }

    /// A cgroup of this machine for a test; `None` where none can be made.
    fn real() -> Option<PathBuf> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = mount()?.join(format!("plimsoll-test-{}-{number}", std::process::id()));
        // Not root, and no folder was delegated to this user.
        fs::create_dir(&folder).ok().map(|()| folder)
    }

    #[test]
    fn a_process_without_session_and_environment_does_not_leave_its_cgroup() {
        let Some(delegated) = real() else { return };
        // Waits until it is enclosed, as the trampoline is long in being loaded.
        let mut child = Command::new("sh")
            .args(["-c", "read go; env -i setsid sleep 97 & sleep 1000"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let group = EngineCgroup::enclose_in(&delegated, child.id(), None).unwrap();
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
        let created = group.0.clone();
        drop(group);
        assert!(!created.exists());
        fs::remove_dir(delegated).unwrap();
    }

    #[test]
    fn the_kernel_ends_an_engine_that_passes_its_bound() {
        let Some(delegated) = real() else { return };
        let mut child = Command::new("sh")
            .args(["-c", "read go; exec head -c 64M /dev/zero | tail"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let group = EngineCgroup::enclose_in(&delegated, child.id(), Some(Bytes::mib(16))).unwrap();
        let bounded = group.0.join("memory.max").exists();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\n").unwrap();
        let ended = child.wait().unwrap();
        // Where version 1 has the memory controller, there is no bound.
        assert_eq!(ended.success(), !bounded, "{ended:?}");
        let events = read(&group.0, "memory.events");
        assert_eq!(bounded, events.lines().any(|line| line.starts_with("oom_kill ") && line != "oom_kill 0"));
        drop(group);
        fs::remove_dir(delegated).unwrap();
    }

    #[test]
    fn no_cgroup_is_made_in_a_folder_that_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(EngineCgroup::enclose_in(folder.path(), 1, Some(Bytes::gib(1))).is_none());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
