//! Finds and supervises a program that a subcommand starts: passes signals on, reads its memory, and returns
//! its exit status.

use std::ffi::{OsStr, OsString};
use std::future::poll_fn;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::task::Poll;
use std::time::Duration;
use std::{fs, io};

use plimsoll_probe::guard::{Record, answer_room_request, read_pages, read_tree};
use plimsoll_process::{Environment, LaunchError, find_program};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use serde::Serialize;
use tokio::process;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{MissedTickBehavior, interval};

use crate::own_failure::OWN_FAILURE;
pub use crate::own_failure::{NOT_EXECUTABLE, NOT_FOUND, own_failure};
use crate::report::ErrorReport;

/// Interval between readings of the pages.
const PERIOD: Duration = Duration::from_millis(100);
/// ForwardedSignals that are passed on, besides those of the terminal.
const PASSED_ON: [Signal; 6] =
    [Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::CONT];
// A terminal sends SIGINT and SIGQUIT to the whole foreground group, so they are not passed on there. A
// second SIGINT would make many servers quit at once.
const FROM_TERMINAL: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// Exit code or signal of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildEnd {
    Code(u8),
    Signal(i32),
}

impl ChildEnd {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            // wait(2) passes on only the low eight bits of an exit status.
            (Some(code), _) => Self::Code(u8::try_from(code & 0xff).unwrap_or(OWN_FAILURE)),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(OWN_FAILURE),
        }
    }

    /// Ends as the program did. Rust's own signal handlers are reset only by exec, so another program raises
    /// the signal (`plimsoll raise-signal`).
    pub fn repeat(self) -> ExitCode {
        match self {
            Self::Code(code) => ExitCode::from(code),
            Self::Signal(signal) => {
                let _cannot = Command::new(plimsoll_process::PLIMSOLL)
                    .arg0("plimsoll")
                    .args(["raise-signal", &signal.to_string()])
                    .exec();
                ExitCode::from(u8::try_from(128 + signal).unwrap_or(OWN_FAILURE))
            }
        }
    }
}

/// Splits a command into the program, as `execvp` would find it, and its arguments.
pub fn program(command: &[OsString]) -> Result<(PathBuf, &[OsString]), ErrorReport> {
    let (name, rest) = match command.split_first() {
        Some((name, rest)) => (Path::new(name), rest),
        None => (Path::new(""), command),
    };
    let found = find_program(name, None, std::env::var_os("PATH").as_deref());
    let found = found.map_err(|error| {
        let is_missing = matches!(error, LaunchError::FindProgram { .. });
        ErrorReport::from(error).with_status(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
    })?;
    Ok((found, rest))
}

/// Starts the program and reports its process id. Returns its end, and the record of the pages and the ledger
/// of all its processes.
pub async fn follow(
    program: &Path,
    (name, arguments): (&OsStr, &[OsString]),
    environment: &Environment,
    pages: &Path,
    started: impl FnOnce(u32),
) -> Result<(ChildEnd, Record), ErrorReport> {
    let mut record = Record::default();
    // Before the program starts: a signal in between would end this process and leave the program behind.
    let mut signals = ForwardedSignals::listen()?;
    let mut child = process::Command::new(program)
        .arg0(name)
        .args(arguments)
        // The environment was read earlier and changed since; inheriting would add removed variables again.
        .env_clear()
        .envs(environment.iter())
        .spawn()
        .map_err(|error| {
            // A script whose interpreter is missing is found on PATH, but execve(2) fails with ENOENT.
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let report = ErrorReport::of_file("cannot execute", program)(error);
            report.with_status(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
        })?;
    child.id().map(started);
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let mut looks = interval(PERIOD);
    // After SIGSTOP the default would make up for all missed ticks with a burst of readings.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(ErrorReport::of("cannot watch the program"))?,
            signal = signals.next() => pass_on(pid, signal),
            _ = looks.tick() => look(pages, &mut record),
        }
    };
    // Once more: the last allocations and refusals happen within the last interval.
    look(pages, &mut record);
    Ok((ChildEnd::of(status), record))
}

/// Reads the pages, and answers every waiting request for room: no other process here could make any.
fn look(folder: &Path, record: &mut Record) {
    let pages = read_pages(folder);
    for page in &pages {
        if let Some((room_request, _, _)) = page.room_request {
            let _ = answer_room_request(folder, page.pid, room_request);
        }
    }
    record.see(&pages, read_tree(folder));
}

/// Passes a signal on. The child is not reaped yet while this runs, so its process id is still its own.
fn pass_on(child: Option<Pid>, signal: Signal) {
    let has_it = FROM_TERMINAL.contains(&signal) && is_in_foreground();
    if let Some(child) = child.filter(|_| !has_it) {
        let _ = kill_process(child, signal);
    }
}

fn is_in_foreground() -> bool {
    // `/dev/tty` and not stdin: the program may read from a pipe in the foreground of a terminal.
    let terminal = fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Streams of the signals that are passed on to the program.
struct ForwardedSignals(Vec<(Signal, unix::Signal)>);

impl ForwardedSignals {
    fn listen() -> Result<Self, ErrorReport> {
        let wanted = PASSED_ON.into_iter().chain(FROM_TERMINAL);
        let listened = wanted.filter(|signal| !is_ignored(*signal)).map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            Ok((signal, stream))
        });
        listened.collect::<io::Result<_>>().map(Self).map_err(ErrorReport::of("cannot listen for signals"))
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// True if a signal was ignored at the start of this process.
pub fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // Signals count from 1, and signal N is bit N - 1 of the mask.
    let bit = u32::try_from(signal.as_raw() - 1).unwrap_or(0);
    mask.checked_shr(bit).unwrap_or(0) & 1 == 1
}
