//! Checks through `/proc` whether another process is still alive.
//!
//! A process is identified by PID and start time, because the kernel reuses PIDs. A zombie counts as ended.
//! If the check fails, the process counts as alive.

use core::ffi::CStr;
use core::fmt::Write;

use plimsoll_wire::tree::SlotOwner;

use super::shared_file;
use crate::process;
use crate::text::Text;

/// Positions behind the process's name in its `stat`: fields 3, 20 and 22 of proc(5).
const STATE: usize = 0;
const THREADS: usize = 17;
const START: usize = 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessLife {
    /// In clock ticks since boot.
    start: u64,
    /// All its threads have ended.
    ended: bool,
}

/// This process.
pub(super) fn me() -> SlotOwner {
    let process = process::number();
    SlotOwner::new(process, life(process).map_or(0, |life| life.start))
}

/// Identifies the PID and time namespaces in which numbers and start times of this process count; never 0.
pub(super) fn space() -> u64 {
    let numbers = number(c"/proc/self/ns/pid").unwrap_or(1);
    let times = number(c"/proc/self/ns/time").unwrap_or(0);
    // Rotated, so that two equal inode numbers do not cancel each other.
    (numbers ^ times.rotate_left(32)).max(1)
}

/// True if a process of this namespace has ended.
pub(super) fn is_gone(owner: SlotOwner) -> bool {
    let Ok(process) = i32::try_from(owner.process()) else {
        return true;
    };
    // EPERM also means that the process exists: it belongs to another user.
    // SAFETY: signal 0 sends nothing.
    let exists = unsafe { libc::kill(process, 0) } == 0 || shared_file::errno() != libc::ESRCH;
    let judged = life(owner.process());
    !exists || judged.is_some_and(|life| life.ended || !owner.can_be(life.start))
}

fn life(process: u32) -> Option<ProcessLife> {
    let (mut path, mut bytes) = (Text::new(), [0; 1024]);
    write!(path, "/proc/{process}/task/{process}/stat").ok()?;
    let read = shared_file::read(path.as_c()?, &mut bytes)?;
    parse(bytes.get(..read)?)
}

fn parse(stat: &[u8]) -> Option<ProcessLife> {
    // The last one: a process may put `)` into its own name.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let field = |index| rest.split_ascii_whitespace().nth(index);
    // The main thread of a running process may have ended and be a zombie while the others go on.
    let ended = matches!(field(STATE)?, "Z" | "X") && field(THREADS)?.parse::<u32>().ok()? <= 1;
    let start = field(START)?.parse().ok()?;
    Some(ProcessLife { start, ended })
}

/// The inode number in the name of a namespace, as in `pid:[4026531836]`.
fn number(path: &CStr) -> Option<u64> {
    let mut bytes = [0_u8; 64];
    // SAFETY: a C string, and room for so many bytes.
    let read = unsafe { libc::readlink(path.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) };
    let name = core::str::from_utf8(bytes.get(..usize::try_from(read).ok()?)?).ok()?;
    let (_, number) = name.split_once('[')?;
    number.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: &str, threads: u32) -> Option<ProcessLife> {
        let line =
            format!("7 ({name}) {state} 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 8813 9 10");
        parse(line.as_bytes())
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        for (name, state, threads, ended) in [
            ("sh", "S", 1, false),
            ("a) Z 1 (", "R", 1, false),
            ("sh", "Z", 1, true),
            ("sh", "Z", 3, false),
            ("sh", "X", 0, true),
        ] {
            let life = ProcessLife { start: 8813, ended };
            assert_eq!(stat(name, state, threads), Some(life), "{name} {state} {threads}");
        }
        assert_eq!(parse(b"7 (sh) S 1 2"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn this_process_lives_and_an_earlier_one_with_its_number_does_not() {
        let process = std::process::id();
        let start = life(process).unwrap().start;
        assert!(!is_gone(me()));
        assert!(!is_gone(SlotOwner::new(process, 0)));
        assert!(is_gone(SlotOwner::new(process, start - 1)));
        assert!(is_gone(SlotOwner::new(4_194_303, 1)), "no process has the largest number");
        assert!(number(c"/proc/self/ns/pid").is_some());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let owner = SlotOwner::new(child.id(), 0);
        while !is_gone(owner) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_gone(owner));
    }
}
