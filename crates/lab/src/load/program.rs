//! The second program: run by `plimsoll doctor`, so that guard sees what it is refused and its end is
//! explained as any other.
//!
//! DECISION: what it prints goes to stderr, so that on doctor's stdout there is the verdict alone. Where
//! guard's library is not there, the program runs bare, and its own words are all that is judged. It has a
//! process group of its own, which ends with it.

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

/// Lines of the program's that are kept, its last ones.
const MOST_LINES: usize = 200;
/// Of a line, what is kept.
const LONGEST_LINE: u64 = 2000;
/// Of doctor's verdict.
const MOST_VERDICT: u64 = 1 << 20;
/// Grace for children of the program that still hold its pipes.
const SOON: Duration = Duration::from_secs(1);

/// End of the program.
#[derive(Clone, Debug)]
pub struct Ending {
    pub failed: bool,
    /// In words: its status, its signal, or that it was stopped.
    pub status: String,
    /// `plimsoll.diagnosis/1`, where it failed.
    pub diagnosis: Option<Value>,
    /// Its last output.
    pub last_lines: Vec<String>,
    pub lasted: Duration,
}

/// The program while it runs. Dropping it ends it and all that it started.
pub(super) struct Program {
    child: Child,
    group: Option<Pid>,
    start: Instant,
    words: Rc<Words>,
    heard: JoinHandle<()>,
    /// Doctor's; `None` where the program runs bare.
    verdict: Option<JoinHandle<Vec<u8>>>,
}

/// Its output so far.
#[derive(Debug, Default)]
struct Words {
    lines: RefCell<VecDeque<String>>,
    has_spoken: Cell<bool>,
}

impl Program {
    pub(super) fn start(command: &str) -> io::Result<Self> {
        // On a line of its own, so that the command may begin with whatever it likes.
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
            .args(["-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that shells, Python and their children can be ended together.
            .process_group(0)
            .spawn()?;
        let words = Rc::new(Words::default());
        let heard = tokio::task::spawn_local(listen(child.stderr.take(), Rc::clone(&words)));
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

    /// It has printed something.
    pub(super) fn has_spoken(&self) -> bool {
        self.words.has_spoken.get()
    }

    /// Its end, if that has come.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits so long for its end; says whether it came.
    pub(super) async fn ends_within(&mut self, time: Duration) -> bool {
        timeout(time, self.child.wait()).await.is_ok()
    }

    /// Diagnoses its end.
    pub(super) async fn judged(mut self, status: ExitStatus) -> Ending {
        let lasted = self.start.elapsed();
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
        Ending {
            failed,
            status: in_words(status),
            diagnosis,
            last_lines,
            lasted,
        }
    }

    /// Ends it before its time, which is no failure of its own.
    pub(super) async fn stopped(mut self) -> Ending {
        self.end();
        let _ = self.child.wait().await;
        Ending {
            failed: false,
            status: "it was still there, and was stopped".to_owned(),
            diagnosis: None,
            last_lines: self.words.lines.take().into(),
            lasted: self.start.elapsed(),
        }
    }

    fn end(&mut self) {
        // Only while it has not been waited for is the number sure to be its own.
        if let (Some(group), Some(_)) = (self.group, self.child.id()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Doctor ends with 128 and more for a signal, as a shell does.
fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "it did its work".to_owned(),
        (Some(code), _) if code > 128 => format!("it was killed by signal {}", code - 128),
        (Some(code), _) => format!("it ended with status {code}"),
        (None, signal) => format!("it was killed by signal {}", signal.unwrap_or_default()),
    }
}

async fn listen(stderr: Option<impl AsyncRead + Unpin>, words: Rc<Words>) {
    let Some(stderr) = stderr else { return };
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    // A line without end is cut, not kept.
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
    // Half a verdict cannot be read, and is none.
    let _ = stdout.take(MOST_VERDICT).read_to_end(&mut text).await;
    text
}
