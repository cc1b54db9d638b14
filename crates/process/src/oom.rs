//! Reads the kernel's count of out-of-memory kills.

use crate::cgroup;
use crate::kernel_text::read_kernel_text;

/// Number of processes that the kernel has killed because memory ran out, since boot: in this process's
/// cgroup if it reports that, else on the machine.
pub fn kernel_oom_kills() -> Option<u64> {
    // Engines run in the daemon's cgroup or below it, and the counter of version 2 includes what is below.
    let own = cgroup::home().and_then(|home| {
        let events = home.join("memory.events");
        counter(&read_kernel_text(events.to_str()?)?, "oom_kill")
    });
    own.or_else(|| counter(&read_kernel_text("/proc/vmstat")?, "oom_kill"))
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
