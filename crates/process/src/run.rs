//! Runs short helper programs, with a time limit and captured output.

use std::io::{self, Read, Seek, SeekFrom};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::system;

const POLL: Duration = Duration::from_millis(5);
/// The most output of a helper program that is kept in memory.
const STATED_LIMIT: u64 = 256 * 1024;

/// Exit status and output of a finished helper program.
#[derive(Debug)]
pub struct ProgramEnded {
    /// Exit status; `None` if the time limit passed and the program was killed.
    pub status: Option<ExitStatus>,
    /// The program's last lines, stdout and stderr together.
    pub stated: String,
}

impl ProgramEnded {
    /// True where the beginning of the output may be missing.
    pub fn is_cut(&self) -> bool {
        u64::try_from(self.stated.len()).is_ok_and(|length| length >= STATED_LIMIT)
    }

    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns the last lines, for an error message.
    pub fn tail(&self, lines: usize) -> String {
        let kept: Vec<&str> =
            self.stated.lines().rev().filter(|line| !line.trim().is_empty()).take(lines).collect();
        kept.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Runs `command` for at most `limit`.
pub fn run(command: &mut Command, limit: Duration) -> io::Result<ProgramEnded> {
    // DECISION: stdout and stderr both go into one unlinked file. So a program that writes a lot cannot block
    // on a full pipe, and a grandchild that keeps the output open cannot delay the caller.
    let mut stated = system::unlinked_file()?;
    let (out, err) = (stated.try_clone()?, stated.try_clone()?);
    // Counted from before the start, because waiting for a busy file takes time too.
    let end = Instant::now() + limit;
    let mut child = spawn(command.stdin(Stdio::null()).stdout(out).stderr(err), end)?;
    let status = wait(&mut child, end)?;
    let length = stated.seek(SeekFrom::End(0))?;
    // The end is kept: that is where programs report their errors.
    stated.seek(SeekFrom::Start(length.saturating_sub(STATED_LIMIT)))?;
    let mut bytes = Vec::new();
    stated.take(STATED_LIMIT).read_to_end(&mut bytes)?;
    Ok(ProgramEnded { status, stated: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Starts the program; it retries for a moment if the file is being written, for example by an upgrade.
fn spawn(command: &mut Command, end: Instant) -> io::Result<Child> {
    loop {
        match command.spawn() {
            // ETXTBSY: execve(2) refuses a file that is open for writing.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                thread::sleep(POLL);
            }
            started => return started,
        }
    }
}

fn wait(child: &mut Child, end: Instant) -> io::Result<Option<ExitStatus>> {
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL);
    }
    // Reaped as well, so that the daemon keeps no zombie.
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> ProgramEnded {
        run(Command::new("sh").args(["-c", script]), limit).unwrap()
    }

    #[test]
    fn both_streams_and_the_status_are_kept() {
        let ended = shell("echo out; echo err >&2; exit 3", Duration::from_secs(60));
        assert_eq!(ended.status.unwrap().code(), Some(3));
        assert_eq!(ended.stated, "out\nerr\n");
        assert_eq!(ended.tail(1), "err");
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_the_limit() {
        let start = Instant::now();
        let ended = shell("echo begun; exec sleep 100", Duration::from_secs(1));
        assert!(ended.status.is_none() && start.elapsed() < Duration::from_secs(60));
        assert_eq!(ended.stated, "begun\n");
    }

    #[test]
    fn a_program_that_is_being_written_is_waited_for() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, "#!/bin/sh\necho ran\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let writing = std::fs::File::options().append(true).open(&path).unwrap();
        let done = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(writing);
        });
        assert_eq!(run(&mut Command::new(&path), Duration::from_secs(5)).unwrap().stated, "ran\n");
        done.join().unwrap();
    }

    #[test]
    fn only_the_end_of_a_long_output_is_kept() {
        let ended = shell("yes | head -c 1000000; echo last", Duration::from_secs(5));
        assert_eq!(ended.tail(1), "last");
        assert!(u64::try_from(ended.stated.len()).unwrap() <= STATED_LIMIT);
    }
}
