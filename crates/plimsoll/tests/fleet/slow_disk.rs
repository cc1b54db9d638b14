//! Slow disk for the etcd of a test fleet: a cgroup that limits writes or, without cgroups, repeated SIGSTOP.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Writes a second, over all members. A write of etcd then takes about a second.
const WRITES: u64 = 30;
const BLOCK_IO: &str = "/sys/fs/cgroup/blkio";

/// Group of processes whose writes to one disk are few.
pub(crate) struct SlowDisk {
    group: PathBuf,
}

impl SlowDisk {
    /// The group for the disk of this folder; `None` where the machine does not let one be made.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let device = fs::metadata(folder).ok()?.dev();
        let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
        let group = Path::new(BLOCK_IO).join(format!("plimsoll-test-{}", std::process::id()));
        fs::create_dir_all(&group).ok()?;
        let slow = Self { group };
        let limit = format!("{major}:{minor} {WRITES}");
        fs::write(slow.group.join("blkio.throttle.write_iops_device"), limit).ok()?;
        Some(slow)
    }

    /// Moves a process into the group, or back to the group of this test.
    pub(crate) fn hold(&self, pid: u32, is_slow: bool) {
        let group = if is_slow { self.group.clone() } else { own_group() };
        // The process may have ended.
        let _ = fs::write(group.join("cgroup.procs"), pid.to_string());
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let occupied = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        occupied.lines().for_each(|pid| drop(fs::write(own_group().join("cgroup.procs"), pid)));
        let _ = fs::remove_dir(&self.group);
    }
}

fn own_group() -> PathBuf {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = groups.lines().find_map(|line| line.split_once(":blkio:").map(|(_, path)| path.to_owned()));
    Path::new(BLOCK_IO).join(path.unwrap_or_default().trim_start_matches('/'))
}
