//! Measures the resident host memory of a child process and its descendants, with and without page cache.

use std::fs;

use plimsoll_base::Bytes;

use crate::reading::{field, tree};

/// Everything that a process has in memory, mapped model files included.
const RESIDENT: &[&str] = &["VmRSS:"];
/// Memory that the kernel cannot drop: mapped files are page cache, unless they are locked.
const OCCUPIED: &[&str] = &["RssAnon:", "RssShmem:", "VmLck:"];

/// Returns the resident bytes of `leader` and its descendants; `None` once the leader is gone.
///
/// Pages that two of them share count twice, so it is at most too much.
pub fn resident(leader: u32) -> Option<Bytes> {
    of_tree(leader, RESIDENT)
}

/// The same without page cache.
pub fn resident_less_cache(leader: u32) -> Option<Bytes> {
    of_tree(leader, OCCUPIED)
}

fn of_tree(leader: u32, fields: &[&str]) -> Option<Bytes> {
    let own = of_process(leader, fields)?;
    let others = tree(leader).into_iter().skip(1);
    Some(own + others.filter_map(|pid| of_process(pid, fields)).sum())
}

fn of_process(pid: u32, fields: &[&str]) -> Option<Bytes> {
    // `status` rather than `statm`: it counts in KiB, whatever the size of a page.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // A zombie has none of them.
    let found: Vec<Bytes> = fields.iter().filter_map(|name| field(&status, name)).collect();
    (!found.is_empty()).then(|| found.into_iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_mapped_file_is_page_cache_and_memory_of_the_process_is_not() {
        let script = "import mmap,sys,time\nx=bytearray(64<<20)\nf=open(sys.argv[1],'rb')\n\
            m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ)\ny=sum(m[::4096])\nprint('ready',flush=True)\ntime.sleep(100)";
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(32 << 20).unwrap();
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(file.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let (all, occupied) = (resident(child.id()).unwrap(), resident_less_cache(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        // The kernel's counters lag by some pages for each processor.
        assert!(occupied >= Bytes::mib(60) && occupied <= Bytes::mib(96), "{occupied}");
        assert!(all >= occupied + Bytes::mib(28), "{all} {occupied}");
    }

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
        assert!(resident(pid) > of_process(pid, RESIDENT));
        for pid in inner.into_iter().rev() {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
        wrapper.wait().unwrap();
        assert_eq!(resident(pid), None);
    }
}
