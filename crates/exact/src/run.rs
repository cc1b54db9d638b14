//! Runs the engine until it has said what its buffers take, and no longer.
//!
//! It is a group of its own that ends with us, however we end: a trampoline sets the parent-death signal
//! ([`exec_child`](plimsoll::command::exec_child)), and the whole group is killed once the last buffer is
//! known. What it says comes through one pipe, so that complaints and buffers keep their order.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_launch::PLIMSOLL;
use plimsoll_planner::exact::Transcript;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid, kill_process_group};

use super::ExactError;

/// More at once would only wait for each other's memory.
const MOST_AT_ONCE: usize = 8;
/// A trillion parameters take a second.
const DEADLINE: Duration = Duration::from_secs(30);
/// No engine says so much before it is ready.
const LONGEST_LOG: usize = 64 << 20;
/// The rest of a line is not worth keeping.
const LONGEST_LINE: usize = 4096;

/// Log line at which an engine has reported all buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// With its first context: it loads nothing else. What it would do next is decode a few tokens, which
    /// takes long where layers are in host memory.
    Context,
    /// Creation of its slots.
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
    pub(super) until: Until,
}

/// Runs jobs side by side, as many at once as there are processors; of each the lines that matter.
pub(super) fn run_all(program: &Path, jobs: &[Job]) -> Vec<Result<Vec<String>, ExactError>> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    // Workers take the next job from a shared counter, so a slow engine start does not hold up a fixed share.
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
        let mine = work();
        let theirs = others
            .into_iter()
            .flat_map(|other| other.join().unwrap_or_default());
        mine.into_iter().chain(theirs).collect()
    });
    ended.sort_by_key(|(at, _)| *at);
    ended.into_iter().map(|(_, ended)| ended).collect()
}

fn take<'a>(jobs: &'a [Job], next: &AtomicUsize) -> Option<(usize, &'a Job)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, jobs.get(at)?))
}

fn run(program: &Path, job: &Job) -> Result<Vec<String>, ExactError> {
    let until = job.until;
    let start = |error| ExactError::Start {
        path: program.to_owned(),
        error,
    };
    let (log, said) = io::pipe().map_err(start)?;
    let child = Command::new(PLIMSOLL)
        .arg("exec-child")
        .args(["--parent", &getpid().as_raw_nonzero().to_string(), "--"])
        .arg(program)
        .args(&job.arguments)
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(said.try_clone().map_err(start)?)
        .stderr(said)
        .process_group(0)
        .spawn();
    let engine = Running(child.map_err(start)?);
    let mut listener = Listener::default();
    let ended = listener.listen(log, until);
    drop(engine);
    match ended {
        Ok(()) if until.is_over(&listener.transcript) => Ok(listener.lines),
        Ok(()) => Err(listener.transcript.refusal().into()),
        Err(_) => Err(ExactError::Wait {
            path: program.to_owned(),
            seconds: DEADLINE.as_secs(),
            last: listener.last,
        }),
    }
}

/// A process group that is gone when this is.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // The leader is not reaped yet, so the number is still its own.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Log so far.
#[derive(Default)]
struct Listener {
    transcript: Transcript,
    lines: Vec<String>,
    last: String,
}

impl Listener {
    /// Listens until everything is known or the engine has ended.
    fn listen(&mut self, mut log: PipeReader, until: Until) -> io::Result<()> {
        let end = Instant::now() + DEADLINE;
        let mut rest: Vec<u8> = Vec::new();
        let mut heard = 0;
        let mut buffer = [0; 16 << 10];
        while !until.is_over(&self.transcript) && heard < LONGEST_LOG {
            wait_for(&log, end)?;
            let count = log.read(&mut buffer)?;
            if count == 0 {
                self.hear(&rest);
                return Ok(());
            }
            heard += count;
            rest.extend_from_slice(&buffer[..count]);
            let whole = rest
                .iter()
                .rposition(|&byte| byte == b'\n')
                .map_or(0, |last| last + 1);
            for line in rest[..whole].split(|&byte| byte == b'\n') {
                if !until.is_over(&self.transcript) {
                    self.hear(line);
                }
            }
            rest.drain(..whole);
            // A partial line longer than this is cut: its sizes stand at its beginning.
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

/// Waits until there is something to read; an error once the time is up.
fn wait_for(log: &PipeReader, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(log, PollFlags::IN)], Some(&left)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
