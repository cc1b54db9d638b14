//! Resident host memory of a child process and its descendants, mapped model files included.

use std::fs;

use plimsoll_base::Bytes;

/// Maximum number of descendants that are counted.
const MOST: usize = 256;

/// Returns the resident bytes of `leader` and its descendants; `None` once the leader is gone.
///
/// Pages that two of them share count twice, so it is at most too much.
pub fn resident(leader: u32) -> Option<Bytes> {
    let own = resident_alone(leader)?;
    let others = family(leader).into_iter().skip(1);
    Some(own + others.filter_map(resident_alone).sum())
}

/// A process and its descendants, itself first.
pub fn family(leader: u32) -> Vec<u32> {
    let mut family = vec![leader];
    let mut looked_at = 0;
    while let Some(&pid) = family.get(looked_at)
        && looked_at <= MOST
    {
        family.extend(children(pid));
        looked_at += 1;
    }
    family
}

fn resident_alone(pid: u32) -> Option<Bytes> {
    // `status` rather than `statm`: it counts in KiB, whatever the size of a page.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rest = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    rest.split_whitespace().next()?.parse().ok().map(Bytes::kib)
}

/// Children of the main thread; engines that fork do it there.
fn children(pid: u32) -> Vec<u32> {
    // The file exists where the kernel has CONFIG_PROC_CHILDREN; elsewhere only the leader is counted.
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_wrapper_answers_for_what_it_started() {
        let script = "sh -c 'sleep 1000; :' & wait";
        let mut wrapper = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = wrapper.id();
        let limit = Instant::now() + Duration::from_secs(20);
        // Down to the last of them, or it would be left behind.
        while children(pid).iter().all(|inner| children(*inner).is_empty()) {
            assert!(Instant::now() < limit);
            std::thread::sleep(Duration::from_millis(5));
        }
        let inner = children(pid);
        assert!(resident(pid) > resident_alone(pid));
        for pid in inner {
            let group = children(pid).into_iter().chain([pid]);
            for pid in group {
                let _ = Command::new("kill").arg(pid.to_string()).status();
            }
        }
        wrapper.wait().unwrap();
        assert_eq!(resident(pid), None);
    }
}
