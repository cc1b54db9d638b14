//! Reasons why a child process exited, and the kernel's count of out-of-memory kills.

use std::fs::File;
use std::io::Read;

use crate::engine_cgroup;

/// Room for a usual text of the kernel.
const KERNEL_TEXT: usize = 8 << 10;

/// Cause of a child's end: a request, a kill, or the child itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The child itself: it left or died.
    OnItsOwn,
    /// The child ended in time on request.
    Asked,
    /// The child was requested to end, did not, and was killed.
    AskedAndKilled,
    /// The child logged that it cannot continue, did not exit, and was killed. Its last log lines have the
    /// cause.
    Stuck,
}

/// Number of processes that the kernel has killed because memory ran out, since boot: in this process's
/// cgroup if it reports that, else on the machine.
pub(super) fn kernel_oom_kills() -> Option<u64> {
    // Engines run in the daemon's cgroup or below it, and the counter of version 2 includes what is below.
    let cgroup = engine_cgroup::home().and_then(|home| {
        let events = home.join("memory.events");
        counter(&read_kernel_text(events.to_str()?)?, "oom_kill")
    });
    cgroup.or_else(|| counter(&read_kernel_text("/proc/vmstat")?, "oom_kill"))
}

/// Reads a file whose text the kernel makes at each read, and whose size it does not say. `fs::read_to_string` would
/// begin with 32 bytes, and a page of counters takes ten reads then, each of which sums them up again
/// (mm/vmstat.c:vmstat_start @ Linux 6.12).
pub(super) fn read_kernel_bytes(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(KERNEL_TEXT);
    File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn read_kernel_text(path: &str) -> Option<String> {
    String::from_utf8(read_kernel_bytes(path)?).ok()
}

pub(super) fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "low 0\noom 7\noom_kill 3\noom_group_kill 1\n";
        assert_eq!(counter(text, "oom_kill"), Some(3));
        assert_eq!(counter(text, "oom"), Some(7));
        assert_eq!(counter(text, "kill"), None);
    }
}
