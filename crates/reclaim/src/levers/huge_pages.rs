//! Compacts memory by allocating free memory as huge pages and releasing it.
//!
//! A separate process holds the huge pages and releases them when this process dies.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, io};

use plimsoll_host::MemInfo;

use super::{TakeStepError, write};

const HUGE_PAGES: &str = "proc/sys/vm/nr_hugepages";
/// Waits for the end of its input, then writes `$0` to `$1`. It ignores the signals of terminals and
/// services.
const GIVE_BACK: &str = "trap '' HUP INT TERM; while read -r _; do :; done; echo \"$0\" > \"$1\"";

/// Claims as many huge pages as free memory allows ([`MemInfo::claimable_huge_pages`]), in addition to the
/// existing ones.
pub(super) fn claim_and_give_back(root: &Path) -> Result<(), TakeStepError> {
    // DECISION: this works even where `compact_memory` does almost nothing (seen with kernel 6.18).
    let path = root.join(HUGE_PAGES);
    let before: u64 =
        read(&path)?.trim().parse().map_err(|_| TakeStepError::NoHugePages { path: path.clone() })?;
    let memory = MemInfo::read(&read(&root.join("proc/meminfo"))?);
    let claimed = memory.claimable_huge_pages();
    // Started before the claim: a crash between the two must not leave the memory claimed.
    let waiting =
        waiter(before, &path).map_err(|error| TakeStepError::Start { command: "sh".to_owned(), error })?;
    let result = write(root, HUGE_PAGES, &before.saturating_add(claimed).to_string());
    // A failed claim is reported after the release, because the kernel may have claimed a part of it.
    given_back(waiting).map_err(|error| TakeStepError::GiveBack { claimed, before, path, error })?;
    result
}

fn read(path: &Path) -> Result<String, TakeStepError> {
    fs::read_to_string(path).map_err(|error| TakeStepError::Read { path: path.to_owned(), error })
}

/// Starts the process that gives the pages back at the end of its input, in its own process group.
fn waiter(before: u64, path: &Path) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", GIVE_BACK, &before.to_string()])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // In a group of its own, the process survives a Ctrl-C that the terminal sends to this one.
        .process_group(0)
        .spawn()
}

/// Closes the input of the process, and waits until it has given the pages back.
fn given_back(mut waiting: Child) -> io::Result<()> {
    drop(waiting.stdin.take());
    let status = waiting.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("sh ended with {status}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(huge_pages: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        fs::write(root.path().join(HUGE_PAGES), huge_pages).unwrap();
        let memory = "MemTotal: 8388608 kB\nMemFree: 4194304 kB\nHugepagesize: 2048 kB\n";
        fs::write(root.path().join("proc/meminfo"), memory).unwrap();
        root
    }

    fn count(root: &Path) -> String {
        fs::read_to_string(root.join(HUGE_PAGES)).unwrap()
    }

    #[test]
    fn huge_page_count_is_restored_after_a_claim() {
        let root = machine("3\n");
        claim_and_give_back(root.path()).unwrap();
        assert_eq!(count(root.path()), "3\n");
    }

    #[test]
    fn they_are_given_back_when_nobody_is_left_to_say_so() {
        let root = machine("1795");
        let path = root.path().join(HUGE_PAGES);
        let mut waiting = waiter(3, &path).unwrap();
        assert_eq!(count(root.path()), "1795");
        drop(waiting.stdin.take());
        assert!(waiting.wait().unwrap().success());
        assert_eq!(count(root.path()), "3\n");
    }

    #[test]
    fn a_kernel_without_huge_pages_is_left_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let error = claim_and_give_back(root.path()).unwrap_err().to_string();
        assert!(error.contains("cannot read") && error.contains("nr_hugepages"), "{error}");
        let odd = machine("none");
        let error = claim_and_give_back(odd.path()).unwrap_err().to_string();
        assert!(error.starts_with("this kernel cannot allocate huge pages"), "{error}");
        assert_eq!(count(odd.path()), "none");
    }
}
