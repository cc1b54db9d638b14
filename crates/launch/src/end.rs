//! Reasons why a child process exited, and the kernel's count of out-of-memory kills.

use std::fs;

/// The side that ended a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The child itself: it left or died.
    OnItsOwn,
    /// We asked, and it obeyed in time.
    Asked,
    /// We asked, and it had to be killed.
    AskedAndKilled,
    /// It said that it cannot go on, stayed all the same, and was killed. Its last words tell why.
    Stuck,
}

/// The number of processes that the kernel has killed for want of memory since boot: of our cgroup where it
/// is told, else of the machine.
pub(super) fn kernel_oom_kills() -> Option<u64> {
    // Engines run in the daemon's cgroup or below it, and the counter of version 2 includes what is below.
    let cgroup = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        counter(
            &fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.events")).ok()?,
            "oom_kill",
        )
    });
    cgroup.or_else(|| counter(&fs::read_to_string("/proc/vmstat").ok()?, "oom_kill"))
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
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
