//! Ends a child process: runs the stop commands, then collects its last output and its exit status.

use std::time::Duration;

use plimsoll_base::Exit;
use plimsoll_wire::control::EXIT_COMMAND;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{Instant, timeout};

use super::{Phase, Supervisor};
use crate::child::{ChildEnded, ChildEvent};
use crate::end::EndCause;
use crate::spec::StopWay;
use crate::{argv, control};
use plimsoll_log::{Log, LogSource};
use plimsoll_process::Lines;
use plimsoll_process::kernel_oom_kills;

/// Lines that the post-mortem gets.
const LAST_LINES: usize = 200;
/// After the sweep no process holds the pipes any more, except one that left group, tree and environment.
const DRAIN_WITHIN: Duration = Duration::from_secs(1);
/// Longer is for ever, and would overflow the clock.
const LONGEST_STOP: Duration = Duration::from_secs(86_400);

impl Supervisor {
    pub(super) async fn stop(&mut self, within: Duration) {
        let until = Instant::now() + within.min(LONGEST_STOP);
        // A second order may only shorten the time: the scheduler insists.
        if let Phase::Stopping { until: earlier } = self.phase {
            self.phase = Phase::Stopping { until: earlier.min(until) };
            return;
        }
        let loading = self.phase == Phase::Loading;
        self.announcement = None;
        self.cause = EndCause::Requested;
        self.phase = Phase::Stopping { until };
        match self.spec.stop.clone() {
            // A loading llama-server does not listen yet, and there is nothing to finish.
            StopWay::ExitCommand if loading && self.has_channel => self.kill(),
            StopWay::ExitCommand if self.has_channel => self.send_exit_command().await,
            // SIGTERM is all that an engine understands that has not spoken on the channel.
            StopWay::ExitCommand | StopWay::Terminate => self.process.signal(Signal::TERM),
            StopWay::Command(line) => self.run_stop_command(&line),
        }
    }

    async fn send_exit_command(&mut self) {
        let line = format!("{EXIT_COMMAND}\n");
        let sent = match &mut self.stdin {
            Some(stdin) => stdin.write_all(line.as_bytes()).await.is_ok(),
            None => false,
        };
        if !sent {
            self.process.signal(Signal::TERM);
        }
    }

    fn run_stop_command(&mut self, line: &[String]) {
        match argv::stop_command(line, &self.spec, self.process.id()) {
            Ok(command) => self.stop_command = Some(command),
            Err(cause) => {
                let note = format!("cannot run the stop command: {cause}; sent SIGTERM instead");
                self.log.push(LogSource::Plimsoll, note);
                self.process.signal(Signal::TERM);
            }
        }
    }

    pub(super) async fn end(self) {
        let Self {
            process,
            mut stdout,
            mut stderr,
            log,
            events,
            cause,
            was_ready,
            started,
            oom_kills,
            stage_began,
            ..
        } = self;
        let ran = started.elapsed();
        // Before the pipes are read to their end: only the sweep closes their last copies.
        let exit = process.bury().await.unwrap_or(Exit::Unknown);
        let _ = timeout(DRAIN_WITHIN, drain(&mut stdout, &mut stderr, &log)).await;
        // The kernel kills with a signal; the counters of a whole machine are not read for other ends.
        let was_killed = !matches!(exit, Exit::Code(_));
        let more_kills = || oom_kills.zip(kernel_oom_kills()).is_some_and(|(before, now)| now > before);
        let ended = ChildEnded {
            exit,
            cause,
            was_ready,
            ran,
            kernel_oom_kill: was_killed && more_kills(),
            last_lines: log
                .tail(lines_since(&log, stage_began))
                .iter()
                .map(|line| line.text.clone())
                .collect(),
        };
        let _ = events.send(ChildEvent::Ended(ended)).await;
    }
}

fn lines_since(log: &Log, began: u64) -> usize {
    usize::try_from(log.pushed() - began).map_or(LAST_LINES, |lines| lines.min(LAST_LINES))
}

/// Reads the remaining data in the pipes.
async fn drain(stdout: &mut Lines<ChildStdout>, stderr: &mut Lines<ChildStderr>, log: &Log) {
    while stdout.is_open() || stderr.is_open() {
        tokio::select! {
            line = stdout.next(), if stdout.is_open() => {
                // State lines are no log, not even the last ones.
                let line = line.filter(|line| control::state(line).is_none());
                line.into_iter().for_each(|line| log.push(LogSource::Stdout, line));
            }
            line = stderr.next(), if stderr.is_open() => {
                line.into_iter().for_each(|line| log.push(LogSource::Stderr, line));
            }
        }
    }
}
