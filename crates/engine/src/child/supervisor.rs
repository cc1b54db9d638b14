//! Supervisor task of a child process: reads the output, stops the child on request, kills a child that
//! hangs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Once;
use std::time::Duration;

use plimsoll_base::Stage;
use plimsoll_wire::control::NOT_PERMITTED;
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{Child, ChildEvent, StopOrder};
use crate::address::EngineAddress;
use crate::control::LaunchState;
use crate::end::EndCause;
use crate::hang_check::HangCheck;
use crate::health::{Announced, Announcement};
use crate::spec::{ChildSpec, Readiness};
use crate::{control, health};
use plimsoll_log::{Log, LogSource};
use plimsoll_process::LaunchError;
use plimsoll_process::Lines;
use plimsoll_process::ProcessHandle;
use plimsoll_process::kernel_oom_kills;
use plimsoll_process::port_owner;

mod ending;

/// An engine that has given up leaves at once, if it leaves at all (llama.cpp #14458).
const LEAVES_WITHIN: Duration = Duration::from_secs(5);
/// Interval at which lines alone count as progress.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
const EVENTS: usize = 64;
const UNBOUND: &str = "the engine did not create the Unix socket on which plimsoll reaches it";

/// Starts the task that owns the child.
pub(crate) fn supervise(
    spec: ChildSpec,
    mut process: ProcessHandle,
    log: Log,
) -> Result<(Child, mpsc::Receiver<ChildEvent>), LaunchError> {
    let pid = process.id();
    let watch = |cause| LaunchError::Watch { pid, cause };
    let (stdin, stdout, stderr) = process.take_pipes();
    let stdin = stdin.map(ChildStdin::from_std).transpose().map_err(watch)?;
    let stdout = stdout.map(ChildStdout::from_std).transpose().map_err(watch)?;
    let stderr = stderr.map(ChildStderr::from_std).transpose().map_err(watch)?;
    let (orders, inbox) = mpsc::unbounded_channel();
    let (events, outbox) = mpsc::channel(EVENTS);
    let child = Child { pid, address: spec.address.clone(), log: log.clone(), orders };
    let now = Instant::now();
    let supervisor = Supervisor {
        announcement: Some(health::announcement(&spec.readiness, &spec.address, pid)),
        spec,
        process,
        stdin,
        stdout: Lines::new(stdout),
        stderr: Lines::new(stderr),
        orders: inbox,
        events,
        phase: Phase::Loading,
        cause: EndCause::OnItsOwn,
        was_ready: false,
        has_channel: false,
        started: now,
        last_sign: now,
        gave_up: None,
        doubt: None,
        stage_began: log.pushed(),
        stop_command: None,
        // The counter is the machine's, so only its growth while this child runs says anything.
        oom_kills: kernel_oom_kills(),
        log,
    };
    // Local, because the log is shared by `Rc` on the daemon's one thread.
    tokio::task::spawn_local(supervisor.run());
    Ok((child, outbox))
}

// DECISION: once a child serves requests, a log line only starts a health check (`HangCheck`), because
// engines log text of clients. During a load, no client has sent text, so a line that looks like an abort is
// trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Loading,
    Serving,
    Stopping { until: Instant },
    Killed,
}

struct Supervisor {
    spec: ChildSpec,
    process: ProcessHandle,
    stdin: Option<ChildStdin>,
    stdout: Lines<ChildStdout>,
    stderr: Lines<ChildStderr>,
    orders: mpsc::UnboundedReceiver<StopOrder>,
    events: mpsc::Sender<ChildEvent>,
    log: Log,
    phase: Phase,
    cause: EndCause,
    was_ready: bool,
    /// The child has written to the control channel, so it also reads it.
    has_channel: bool,
    started: Instant,
    last_sign: Instant,
    /// The moment at which a loading child reported that it cannot go on.
    gave_up: Option<Instant>,
    /// Check of a serving child after a line that looks like an abort; its result is whether the child works.
    doubt: Option<Pin<Box<dyn Future<Output = bool>>>>,
    /// Number of lines in the log when the present stage began.
    stage_began: u64,
    announcement: Option<Announcement>,
    /// Kept so that it can be killed when the child is gone.
    stop_command: Option<tokio::process::Child>,
    oom_kills: Option<u64>,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            let deadline = self.deadline();
            tokio::select! {
                // The end of the process counts, not of its pipes: a descendant may keep those open.
                () = self.process.ended() => break,
                order = self.orders.recv(), if self.phase != Phase::Killed => self.obey(order).await,
                Some(line) = self.stdout.next(), if self.stdout.is_open() => self.hear(line).await,
                Some(line) = self.stderr.next(), if self.stderr.is_open() => self.note(LogSource::Stderr, line),
                announced = pending_or(&mut self.announcement) => match announced {
                    Announced::Ready => self.become_ready(Value::Null).await,
                    Announced::Stranger(holder) => self.refuse_address(&taken_by(&holder)),
                    Announced::Unbound => self.refuse_address(UNBOUND),
                },
                works = pending_or(&mut self.doubt) => self.settle_doubt(works),
                () = until(deadline) => self.lose_patience(),
            }
        }
        self.end().await;
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Loading | Phase::Serving => self.gave_up.map(|since| since + LEAVES_WITHIN),
            Phase::Stopping { until } => Some(until),
            Phase::Killed => None,
        }
    }

    async fn hear(&mut self, line: String) {
        // Other engines print what clients send, so a state line of theirs proves nothing.
        let state = control::state(&line).filter(|_| self.spec.readiness == Readiness::Control);
        match state {
            Some(state) => {
                self.has_channel = true;
                self.announcement = None;
                self.change(state).await;
            }
            None => self.note(LogSource::Stdout, line),
        }
    }

    async fn change(&mut self, state: LaunchState) {
        match state {
            LaunchState::Loading(progress) => {
                // Progress may be lost where the owner is slow; states may not.
                let _ = self.events.try_send(ChildEvent::Progress(progress));
            }
            // A ready line does not prove that the port is the child's: another user's process may have bound
            // it first.
            LaunchState::Ready(payload) => match self.spec.address.stranger(self.process.id()) {
                Some(uid) => self.refuse_address(&taken_by(&format!("a process of user {uid}"))),
                None if !self.spec.address.is_bound() => self.refuse_address(UNBOUND),
                None => self.become_ready(payload).await,
            },
            LaunchState::Sleeping(payload) => {
                let _ = self.events.send(ChildEvent::Sleeping(payload)).await;
            }
        }
    }

    async fn become_ready(&mut self, payload: Value) {
        self.announcement = None;
        if let Err(cause) = self.spec.address.seal() {
            self.log
                .push(LogSource::Plimsoll, format!("cannot restrict access to the engine's socket: {cause}"));
        }
        if self.phase == Phase::Loading {
            self.phase = Phase::Serving;
            // The engine is ready, so its complaints during the load were harmless.
            self.gave_up = None;
        }
        if self.phase == Phase::Serving {
            // A child that wakes reports ready again; its serving stage began with the first report.
            if !self.was_ready {
                self.was_ready = true;
                self.stage_began = self.log.pushed();
                self.notify_of_open_port();
            }
            let _ = self.events.send(ChildEvent::Ready(payload)).await;
        }
    }

    /// The words of a command are looked at before its start; what a script does shows here.
    fn notify_of_open_port(&self) {
        if let EngineAddress::Port(port) = self.spec.address
            && port_owner::is_open(port)
        {
            tracing::warn!(
                model = self.spec.name,
                "the engine listens on port {port} of every address of this machine, so other machines \
                    reach it without an API key; let its command listen on 127.0.0.1"
            );
        }
    }

    fn note(&mut self, source: LogSource, line: String) {
        if (self.spec.gives_up)(&line, self.stage()) {
            self.suspect();
        }
        if self.phase == Phase::Loading
            && let Some(what) = line.strip_prefix(NOT_PERMITTED)
        {
            notify_once(what);
        }
        self.log.push(source, line);
        // Engines without the control channel report no progress, so their loading is followed by their
        // lines.
        if self.phase == Phase::Loading && self.last_sign.elapsed() >= SIGN_OF_LIFE {
            self.last_sign = Instant::now();
            let _ = self.events.try_send(ChildEvent::Progress(Value::Null));
        }
    }

    fn suspect(&mut self) {
        let Phase::Serving = self.phase else {
            // Only the first such line starts the clock; later ones must not prolong it.
            self.gave_up.get_or_insert_with(Instant::now);
            return;
        };
        if self.doubt.is_none() {
            let check = HangCheck::new(&self.spec, self.process.id());
            self.doubt = Some(Box::pin(check.passes()));
        }
    }

    fn settle_doubt(&mut self, works: bool) {
        self.doubt = None;
        if self.phase == Phase::Serving && !works {
            self.cause = EndCause::Stuck;
            self.kill();
        }
    }

    /// Kills a child whose address is not its own. The words are those that the post-mortem reads as a taken
    /// port, so that the start is tried again elsewhere.
    fn refuse_address(&mut self, why: &str) {
        let note = format!("couldn't bind {}: {why}", self.spec.address);
        self.log.push(LogSource::Plimsoll, note);
        self.cause = EndCause::Stuck;
        self.kill();
    }

    async fn obey(&mut self, order: Option<StopOrder>) {
        match order {
            Some(StopOrder::Stop { within }) => self.stop(within).await,
            // A dropped handle is an order too.
            Some(StopOrder::Kill) | None => {
                self.cause = EndCause::RequestedAndKilled;
                self.kill();
            }
        }
    }

    fn lose_patience(&mut self) {
        self.cause = match self.phase {
            Phase::Loading | Phase::Serving => EndCause::Stuck,
            Phase::Stopping { .. } | Phase::Killed => EndCause::RequestedAndKilled,
        };
        self.kill();
    }

    fn stage(&self) -> Stage {
        if self.was_ready { Stage::Serving } else { Stage::Loading }
    }

    fn kill(&mut self) {
        // A child that answers while it dies must not become ready.
        self.announcement = None;
        self.phase = Phase::Killed;
        self.process.signal(Signal::KILL);
    }
}

/// Logs what the machine does not permit; every engine would say the same.
fn notify_once(what: &str) {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        tracing::warn!("engines run with less isolation, because this machine does not permit {what}")
    });
}

fn taken_by(holder: &str) -> String {
    format!("Address already in use (by {holder})")
}

/// Waits for a future that may be absent. A finished future is removed, because it must not be polled again.
async fn pending_or<T>(future: &mut Option<Pin<Box<dyn Future<Output = T>>>>) -> T {
    match future {
        Some(running) => {
            let output = running.await;
            *future = None;
            output
        }
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
