//! Engine runs for `plan --exact`, which end once the engine has logged its last buffer.
//!
//! The engine has its own process group, which is then killed. If Plimsoll dies first, the kernel kills the
//! engine.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_launch::PLIMSOLL;
use plimsoll_planner::exact::Transcript;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid, kill_process_group};

use super::prompt::Prompt;
use super::{ExactError, report};

/// Upper bound on parallel runs: more only compete for memory bandwidth.
const MOST_AT_ONCE: usize = 8;
/// Time limit of one run. A model of a trillion parameters takes about a second.
const DEADLINE: Duration = Duration::from_secs(30);
/// Log size limit: no engine writes as much before it is ready.
const LONGEST_LOG: usize = 64 << 20;
/// Length at which a log line is cut.
const LONGEST_LINE: usize = 4096;

/// The log event after which an engine has reported everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The first context: the engine loads nothing else. Its next step would be to decode a few tokens, which
    /// is slow where layers are in host memory.
    Context,
    /// The creation of the server's slots.
    Ready,
}

impl Until {
    pub(super) fn is_over(self, transcript: &Transcript) -> bool {
        match self {
            Self::Context => transcript.has_context(),
            Self::Ready => transcript.is_ready(),
        }
    }
}

/// One run of an engine.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The file to which the stand-in writes what the engine asks of the cards.
    pub(super) report: PathBuf,
    pub(super) until: Until,
    pub(super) prompt: Option<Prompt>,
}

/// Runs jobs in parallel, at most one per processor. Returns the relevant log lines of each, in order.
pub(super) fn run_all(program: &Path, jobs: &[Job]) -> Vec<Result<Vec<String>, ExactError>> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    // A shared counter instead of fixed shares: runs differ in length by an order of magnitude.
    let next = AtomicUsize::new(0);
    let work = || {
        let mut ended = Vec::new();
        while let Some((at, job)) = take(jobs, &next) {
            ended.push((at, run(program, job)));
        }
        ended
    };
    let mut ended: Vec<_> = thread::scope(|scope| {
        let others = 1..workers.min(MOST_AT_ONCE).min(jobs.len());
        let others: Vec<_> = others.map(|_| scope.spawn(work)).collect();
        // This thread works too, so one job starts no thread.
        let mine = work();
        let theirs = others.into_iter().flat_map(|other| other.join().unwrap_or_default());
        mine.into_iter().chain(theirs).collect()
    });
    // Workers finish out of order; callers match answers to questions by position.
    ended.sort_by_key(|(at, _)| *at);
    ended.into_iter().map(|(_, ended)| ended).collect()
}

fn take<'a>(jobs: &'a [Job], next: &AtomicUsize) -> Option<(usize, &'a Job)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, jobs.get(at)?))
}

fn run(program: &Path, job: &Job) -> Result<Vec<String>, ExactError> {
    let until = job.until;
    let start = |error| ExactError::Start { path: program.to_owned(), error };
    let (mut log, said) = io::pipe().map_err(start)?;
    let child = Command::new(PLIMSOLL)
        .arg("exec-child")
        .args(["--parent", &getpid().as_raw_nonzero().to_string(), "--"])
        .arg(program)
        .args(&job.arguments)
        // The question built the whole environment. Inheriting more would let variables bypass its filter.
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(said.try_clone().map_err(start)?)
        .stderr(said)
        .process_group(0)
        .spawn();
    let engine = Running(child.map_err(start)?);
    let mut listener = Listener::default();
    let ended = listener.listen(&mut log, until);
    let is_over = until.is_over(&listener.transcript);
    let prompted = job.prompt.as_ref().filter(|_| is_over).map(|prompt| (prompt, prompt.run(log)));
    // Kills the group before the log is judged: an engine that goes on would start decoding.
    drop(engine);
    match ended {
        Ok(()) if is_over => {
            let mut lines = listener.lines;
            match prompted {
                Some((prompt, Ok(()))) => {
                    lines.extend(report::grown(&job.report, &listener.transcript, prompt.tokens));
                }
                Some((prompt, Err(why))) => {
                    let program = program.to_string_lossy().into_owned();
                    return Err(ExactError::Prompt { program, tokens: prompt.tokens, why });
                }
                None => lines.extend(report::asked(&job.report)),
            }
            Ok(lines)
        }
        Ok(()) => Err(listener.transcript.refusal().into()),
        Err(_) => Err(ExactError::Wait {
            path: program.to_owned(),
            seconds: DEADLINE.as_secs(),
            last: listener.last,
        }),
    }
}

/// A process group that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // The leader is not reaped yet, so the kernel cannot have reused its number.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// The log as read so far.
#[derive(Default)]
struct Listener {
    transcript: Transcript,
    lines: Vec<String>,
    last: String,
}

impl Listener {
    /// Reads the log until everything is known or the engine has ended.
    fn listen(&mut self, log: &mut PipeReader, until: Until) -> io::Result<()> {
        let end = Instant::now() + DEADLINE;
        let mut rest: Vec<u8> = Vec::new();
        let mut heard = 0;
        let mut buffer = [0; 16 << 10];
        while !until.is_over(&self.transcript) && heard < LONGEST_LOG {
            wait_for(log, end)?;
            let count = log.read(&mut buffer)?;
            if count == 0 {
                // The last line of a crash often lacks its newline.
                self.hear(&rest);
                return Ok(());
            }
            heard += count;
            rest.extend_from_slice(&buffer[..count]);
            let whole = rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
            for line in rest[..whole].split(|&byte| byte == b'\n') {
                // A read may hold lines from after the last buffer; they would make equal answers differ.
                if !until.is_over(&self.transcript) {
                    self.hear(line);
                }
            }
            rest.drain(..whole);
            // Bounds a line without end, such as a progress bar.
            rest.truncate(LONGEST_LINE);
        }
        Ok(())
    }

    fn hear(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]);
        if line.trim().is_empty() {
            return;
        }
        if self.transcript.hear(&line) {
            self.lines.push(line.to_string());
        }
        self.last = line.into_owned();
    }
}

/// Waits until there is something to read; an error after the deadline.
fn wait_for(log: &PipeReader, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(log, PollFlags::IN)], Some(&left)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        // An interrupted poll returns early; the read that follows blocks at most until the next line.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
