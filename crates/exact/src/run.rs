//! Runs an engine for `plan --exact`, and ends it once it has logged its last buffer.
//!
//! The engine is then killed with all that it started, also at its limits of time and memory, and where
//! Plimsoll dies first.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_engine::program;
use plimsoll_planner::exact::Transcript;

use super::cache::Answer;
use super::prompt::Prompt;
use super::system::{Engine, Log, StandIn};
use super::{ExactError, RunTerms, report};

/// Upper bound on parallel runs: more only compete for memory bandwidth.
const MOST_AT_ONCE: usize = 8;
/// Time between two looks at the memory of an engine.
const TICK: Duration = Duration::from_millis(50);
/// Log size limit: no engine writes as much before it is ready.
const LONGEST_LOG: usize = 64 << 20;
/// Devices of a list that are read.
const MOST_DEVICES: usize = 256;
/// Length at which a log line is cut.
const LONGEST_LINE: usize = 4096;

/// The log event after which an engine has reported everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The first context: the engine loads nothing else, and would next decode a few tokens.
    Context,
    /// The creation of the server's slots.
    Ready,
    /// The end of a list of devices.
    Devices,
}

impl Until {
    pub(super) fn is_over(self, transcript: &Transcript) -> bool {
        match self {
            Self::Context => transcript.has_context(),
            Self::Ready => transcript.ready,
            Self::Devices => false,
        }
    }
}

/// Variables of a run.
pub(super) type RunVariables = Vec<(OsString, OsString)>;

/// One run of an engine.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) arguments: Vec<String>,
    pub(super) environment: RunVariables,
    pub(super) stand_in: StandIn,
    /// The file to which the stand-in writes what the engine asks of the cards.
    pub(super) report: PathBuf,
    pub(super) until: Until,
    pub(super) prompt: Option<Prompt>,
}

impl Job {
    /// The private folder in which the engine starts: llama.cpp loads backends from there.
    pub(super) fn folder(&self) -> &Path {
        self.report.parent().unwrap_or(Path::new("/"))
    }
}

/// Runs jobs in parallel, at most one per processor. Returns the answers in order.
///
/// After one that did not answer in time, no other begins: each would make the user wait as long.
pub(super) fn run_all(program: &Path, jobs: &[Job], terms: &RunTerms) -> Vec<Result<Answer, ExactError>> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    // Workers finish out of order; callers match answers to questions by position.
    let ended: Vec<OnceLock<_>> = jobs.iter().map(|_| OnceLock::new()).collect();
    // A shared counter instead of fixed shares: runs differ in length by an order of magnitude.
    let next = AtomicUsize::new(0);
    let is_silent = AtomicBool::new(false);
    let work = || {
        while let Some((job, ended)) = jobs.iter().zip(&ended).nth(next.fetch_add(1, Ordering::Relaxed)) {
            let answer = if is_silent.load(Ordering::Relaxed) {
                Err(ExactError::Cancelled(program.to_owned()))
            } else {
                run(program, job, terms)
            };
            is_silent.fetch_or(matches!(answer, Err(ExactError::Wait { .. })), Ordering::Relaxed);
            let _ = ended.set(answer);
        }
    };
    thread::scope(|scope| {
        (1..workers.min(MOST_AT_ONCE).min(jobs.len())).for_each(|_| drop(scope.spawn(work)));
        // This thread works too, so one job starts no thread.
        work();
    });
    ended.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Runs one job; the lines of the answer are those of the log that matter, or the devices of a list.
pub(super) fn run(program: &Path, job: &Job, terms: &RunTerms) -> Result<Answer, ExactError> {
    let start = |error| ExactError::Start { path: program.to_owned(), error };
    let (engine, mut log) = Engine::start(program, job).map_err(start)?;
    let mut listener = Listener {
        program,
        engine,
        job,
        terms,
        end: Instant::now() + terms.time,
        transcript: Transcript::default(),
        lines: Vec::new(),
        last: String::new(),
    };
    let ended = listener.listen(&mut log);
    let prompt = job.prompt.as_ref().filter(|_| listener.is_over());
    let prompted = prompt.map(|prompt| (prompt, prompt.run(log)));
    // Kills the group before the log is judged: an engine that goes on would start decoding.
    let Listener { engine, transcript, lines, .. } = listener;
    drop(engine);
    ended?;
    if job.until == Until::Devices {
        return Ok(Answer { lines, ..Answer::default() });
    }
    if !job.until.is_over(&transcript) {
        return Err(transcript.refusal().into());
    }
    if !transcript.has_weights() {
        return Err(ExactError::Sizes(program.to_owned()));
    }
    let grown = match prompted {
        None => None,
        Some((prompt, Ok(()))) => Some((prompt.tokens, &transcript)),
        Some((prompt, Err(why))) => {
            let program = program.to_string_lossy().into_owned();
            return Err(ExactError::Prompt { program, tokens: prompt.tokens, why });
        }
    };
    let memory = report::memory(&job.report, grown);
    Ok(Answer { engine: None, lines, memory })
}

/// A running engine, the bounds of its run, and its log as read so far.
struct Listener<'a> {
    program: &'a Path,
    engine: Engine,
    job: &'a Job,
    terms: &'a RunTerms,
    end: Instant,
    transcript: Transcript,
    lines: Vec<String>,
    last: String,
}

impl Listener<'_> {
    fn is_over(&self) -> bool {
        self.job.until.is_over(&self.transcript)
    }

    /// Waits until there is something to read; false once the engine has ended without anything left to read.
    fn wait_for(&mut self, log: &mut Log) -> Result<bool, ExactError> {
        loop {
            let left = self.end.saturating_duration_since(Instant::now());
            match log.wait(left.min(TICK)) {
                Ok(true) => return Ok(true),
                Ok(false) if left.is_zero() => return Err(self.silent()),
                // Its descendants may hold the log open.
                Ok(false) if self.engine.has_ended() => return Ok(false),
                Ok(false) => self.check()?,
                Err(_) => return Err(self.silent()),
            }
        }
    }

    /// The error of an engine whose time is over, or whose log cannot be read.
    fn silent(&self) -> ExactError {
        let (path, seconds) = (self.program.to_owned(), self.terms.time.as_secs());
        ExactError::Wait { path, seconds, last: self.last.clone() }
    }

    fn check(&self) -> Result<(), ExactError> {
        if self.terms.cancelled.is_set() {
            return Err(ExactError::Cancelled(self.program.to_owned()));
        }
        // The report lies in memory, too.
        let report = || Bytes::new(fs::metadata(&self.job.report).map_or(0, |about| about.len()));
        let taken = || self.engine.resident() + report();
        match self.terms.memory.filter(|&limit| taken() > limit) {
            Some(limit) => Err(ExactError::Memory { path: self.program.to_owned(), limit }),
            None => Ok(()),
        }
    }

    /// Reads the log until everything is known or the engine has ended.
    fn listen(&mut self, log: &mut Log) -> Result<(), ExactError> {
        let mut rest: Vec<u8> = Vec::new();
        let mut heard = 0;
        let mut buffer = [0; 16 << 10];
        let mut checked = Instant::now();
        while !self.is_over() && heard < LONGEST_LOG {
            let is_open = self.wait_for(log)?;
            // An engine that never stops talking is watched as well.
            if checked.elapsed() > TICK {
                self.check()?;
                checked = Instant::now();
            }
            let count = if is_open { log.read(&mut buffer).map_err(|_| self.silent())? } else { 0 };
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
                if !self.is_over() {
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
        if self.job.until == Until::Devices {
            let device = program::listed_device(&line).filter(|_| self.lines.len() < MOST_DEVICES);
            self.lines.extend(device.map(|(device, _)| device));
        } else if self.transcript.hear(&line) {
            self.lines.push(line.to_string());
        }
        self.last = line.into_owned();
    }
}
