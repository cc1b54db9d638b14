//! Resident host memory of a child process and its descendants, including mapped model files.

use std::fs;

use plimsoll_base::Bytes;

use crate::process::{field, tree};

/// Returns the resident bytes of `leader` and its descendants; `None` once the leader is gone.
///
/// Pages that two of them share count twice, so it is at most too much.
pub fn resident(leader: u32) -> Option<Bytes> {
    let own = resident_alone(leader)?;
    let others = tree(leader).into_iter().skip(1);
    Some(own + others.filter_map(resident_alone).sum())
}

fn resident_alone(pid: u32) -> Option<Bytes> {
    // `status` rather than `statm`: it counts in KiB, whatever the size of a page.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    field(&status, "VmRSS:")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_wrapper_answers_for_what_it_started() {
        let script = "sh -c 'sleep 1000; :' & wait";
        let mut wrapper = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap();
        let pid = wrapper.id();
        let limit = Instant::now() + Duration::from_secs(20);
        // Down to the last of them, or it would be left behind.
        while tree(pid).len() < 3 {
            assert!(Instant::now() < limit);
            std::thread::sleep(Duration::from_millis(5));
        }
        let inner = tree(pid).split_off(1);
        assert!(resident(pid) > resident_alone(pid));
        for pid in inner.into_iter().rev() {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
        wrapper.wait().unwrap();
        assert_eq!(resident(pid), None);
    }
}
