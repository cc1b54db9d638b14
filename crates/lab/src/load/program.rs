//! Second program of a coexistence test, which runs on the same cards as the server under test.
//!
//! It runs under `plimsoll doctor`, so refused allocations are recorded and its end is diagnosed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use plimsoll_launch::PLIMSOLL;
use plimsoll_probe::library::GUARD;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::last_words::judged;

/// Number of output lines kept, the last ones.
const MOST_LINES: usize = 200;
/// Length at which an output line is split.
const LONGEST_LINE: u64 = 2000;
/// Size limit of doctor's verdict.
const MOST_VERDICT: u64 = 1 << 20;
/// Time to drain the pipes after the end, since children of the program may keep them open.
const SOON: Duration = Duration::from_secs(1);

/// End of the second program, with its diagnosis.
#[derive(Clone, Debug)]
pub struct Ending {
    pub failed: bool,
    /// Exit status or signal in words, or that the program was stopped.
    pub status: String,
    /// `plimsoll.diagnosis/1`, if the program failed.
    pub diagnosis: Option<Value>,
    /// The last lines of output.
    pub last_lines: Vec<String>,
    pub lasted: Duration,
}

/// The second program while it runs. Dropping it kills it and everything that it started.
pub(super) struct NeighbourProgram {
    child: Child,
    group: Option<Pid>,
    start: Instant,
    words: Rc<ProgramWords>,
    heard: JoinHandle<()>,
    /// Doctor's verdict; `None` if the program runs bare.
    verdict: Option<JoinHandle<Vec<u8>>>,
}

/// Output of the program so far.
#[derive(Debug, Default)]
struct ProgramWords {
    lines: RefCell<VecDeque<String>>,
    has_spoken: Cell<bool>,
}

impl NeighbourProgram {
    pub(super) fn start(command: &str) -> io::Result<Self> {
        // DECISION: the program's output goes to stderr, so that doctor's stdout has only the verdict.

        // The command follows on its own line, so that it may start with a comment, an assignment or a
        // keyword.
        let script = format!("exec >&2\n{command}");
        let guarded = GUARD.find().is_ok();
        let mut starting = match guarded {
            true => {
                let mut doctor = Command::new(PLIMSOLL);
                doctor.args(["doctor", "--json", "--", "sh"]);
                doctor
            }
            false => Command::new("sh"),
        };
        let mut child = starting
            // Through `sh`, since the user gives the command as one shell line.
            .args(["-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // In a group of its own: `end` must reach doctor, the shell and the program, but not this
            // process.
            .process_group(0)
            .spawn()?;
        let words = Rc::new(ProgramWords::default());
        let heard = tokio::task::spawn_local(listen(child.stderr.take(), Rc::clone(&words)));
        // A bare program has nothing on stdout, because the script sends both streams to stderr.
        let verdict = child.stdout.take().filter(|_| guarded);
        Ok(Self {
            group: child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)),
            child,
            start: Instant::now(),
            words,
            heard,
            verdict: verdict.map(|stdout| tokio::task::spawn_local(read(stdout))),
        })
    }

    /// True once the program has printed something.
    pub(super) fn has_spoken(&self) -> bool {
        self.words.has_spoken.get()
    }

    /// The exit status, if the program has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the end at most this long. Returns true if the program has ended.
    pub(super) async fn ends_within(&mut self, time: Duration) -> bool {
        timeout(time, self.child.wait()).await.is_ok()
    }

    /// Diagnoses the end of the program.
    pub(super) async fn judged(mut self, status: ExitStatus) -> Ending {
        let lasted = self.start.elapsed();
        // Bounded: a background child that keeps the pipe open would block the read for ever.
        let _ = timeout(SOON, &mut self.heard).await;
        let last_lines: Vec<String> = self.words.lines.take().into();
        let failed = !status.success();
        let diagnosis = match self.verdict.take().filter(|_| failed) {
            Some(verdict) => {
                let text = timeout(SOON, verdict).await.ok().and_then(Result::ok);
                text.and_then(|text| serde_json::from_slice(&text).ok())
            }
            None if failed => serde_json::to_value(judged(last_lines.join("\n").as_bytes())).ok(),
            None => None,
        };
        Ending { failed, status: in_words(status), diagnosis, last_lines, lasted }
    }

    /// Stops the program at its time limit, which does not count as a failure.
    pub(super) async fn stopped(mut self) -> Ending {
        self.end();
        let _ = self.child.wait().await;
        Ending {
            failed: false,
            status: "stopped, because it was still running".to_owned(),
            diagnosis: None,
            last_lines: self.words.lines.take().into(),
            lasted: self.start.elapsed(),
        }
    }

    fn end(&mut self) {
        // `id()` is `None` once the child was waited for; the kernel may have reused the number then.
        if let (Some(group), Some(_)) = (self.group, self.child.id()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for NeighbourProgram {
    fn drop(&mut self) {
        self.end();
    }
}

/// Status in words. Doctor exits with 128 plus the signal, as a shell does.
fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended successfully".to_owned(),
        (Some(code), _) if code > 128 => format!("killed by signal {}", code - 128),
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
    }
}

async fn listen(stderr: Option<impl AsyncRead + Unpin>, words: Rc<ProgramWords>) {
    let Some(stderr) = stderr else { return };
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    // `take` bounds the buffer: an endless line is split instead of kept whole.
    while let Ok(length) = (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
        if length == 0 {
            return;
        }
        words.has_spoken.set(true);
        let mut kept = words.lines.borrow_mut();
        kept.push_back(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        if kept.len() > MOST_LINES {
            kept.pop_front();
        }
        line.clear();
    }
}

async fn read(stdout: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut text = Vec::new();
    // An incomplete verdict fails to parse later, and counts as missing.
    let _ = stdout.take(MOST_VERDICT).read_to_end(&mut text).await;
    text
}
