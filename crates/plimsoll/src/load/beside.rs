//! A second program beside the server, in both orders: who fails, and why.
//!
//! First the server is under load and the program comes; then the program is there and the server is asked. Behind plimsoll the model is
//! unloaded between the two, so that it really comes second; any other server keeps its model, and that is said.

use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use plimsoll_core::admit::{End, Stage};
use plimsoll_core::diagnose::{Death, Exit, judge};
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::figures::Figures;
use super::rounds::{Round, Tally};
use super::server::Server;

/// Lines of the program's that are kept, its last ones.
const MOST_LINES: usize = 200;
const LONGEST_LINE: usize = 2000;
/// Between the program's start and the server's first request, where the program comes first.
const LEAD: Duration = Duration::from_secs(3);
/// An unloaded model's memory is back by then.
const UNLOADED: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(30);

/// Who was there first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    ServerFirst,
    ProgramFirst,
}

/// How the two fared.
#[derive(Clone, Debug)]
pub(crate) struct Encounter {
    pub(crate) order: Order,
    pub(crate) tally: Tally,
    /// The server's process is gone, or another one.
    pub(crate) server_died: bool,
    /// Why the program failed; `None` if it did not.
    pub(crate) program: Option<String>,
    pub(crate) notes: Vec<String>,
}

/// What is tried.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    pub(crate) command: String,
    pub(crate) round: Round,
    pub(crate) clients: usize,
    pub(crate) patience: Duration,
    /// How long the program may take.
    pub(crate) limit: Duration,
}

impl Beside {
    /// Both orders, one after the other.
    pub(crate) async fn try_both(
        &self,
        server: &Server,
        figures: &mut Figures,
    ) -> std::io::Result<Vec<Encounter>> {
        let first = self.try_in(Order::ServerFirst, server, figures).await?;
        let second = self.try_in(Order::ProgramFirst, server, figures).await?;
        Ok(vec![first, second])
    }

    async fn try_in(
        &self,
        order: Order,
        server: &Server,
        figures: &mut Figures,
    ) -> std::io::Result<Encounter> {
        let mut notes = Vec::new();
        let mut tally = Tally::default();
        match order {
            // The model is loaded and has answered before the program comes.
            Order::ServerFirst => tally = self.hold(server, 0).await,
            Order::ProgramFirst => notes.extend(self.step_back(server).await),
        }
        figures.follow(server).await;
        let before = figures.process();
        let mut program = Program::start(&self.command)?;
        if order == Order::ProgramFirst {
            let _ = timeout(LEAD, program.child.wait()).await;
        }
        let start = Instant::now();
        let mut number = 1;
        let failure = loop {
            tally.add(self.hold(server, number).await);
            number += 1;
            if let Some(status) = program.child.try_wait()? {
                break program.judged(status).await;
            }
            if start.elapsed() >= self.limit {
                notes.push(format!(
                    "the program was still there after {} s and was stopped",
                    self.limit.as_secs()
                ));
                program.stop().await;
                break None;
            }
        };
        let server_died = before.is_some_and(|process| !process.lives());
        Ok(Encounter {
            order,
            tally,
            // Behind plimsoll the engine of the second order is a new one anyway.
            server_died: server_died && !(order == Order::ProgramFirst && server.is_plimsoll),
            program: failure,
            notes,
        })
    }

    async fn hold(&self, server: &Server, number: u64) -> Tally {
        let clients = (0..self.clients).map(|_| server.client(self.patience)).collect();
        let (_, tally) = self.round.hold(clients, &server.model, number, u64::MAX).await;
        if tally.answered == 0 {
            // A server that refuses at once is not asked in a frenzy.
            sleep(Duration::from_millis(200)).await;
        }
        tally
    }

    /// Takes the model off the cards, where the server can.
    async fn step_back(&self, server: &Server) -> Option<String> {
        if !server.is_plimsoll {
            return Some("the server keeps its model, so that only its requests come second; behind plimsoll the model does".to_owned());
        }
        let unloaded = server
            .post("/models/unload", &json!({ "model": server.model }), SOON)
            .await;
        sleep(UNLOADED).await;
        unloaded
            .err()
            .map(|failure| format!("the model could not be unloaded before: {failure}"))
    }
}

/// The second program, in a process group of its own; its last words are kept.
struct Program {
    child: Child,
    words: tokio::task::JoinHandle<Vec<String>>,
}

impl Program {
    fn start(command: &str) -> std::io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take();
        let words = tokio::task::spawn_local(async move {
            let mut kept = Vec::new();
            let Some(stderr) = stderr else { return kept };
            let mut lines = BufReader::new(stderr).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                let line = String::from_utf8_lossy(&line).into_owned();
                kept.push(line[..line.floor_char_boundary(LONGEST_LINE)].to_owned());
                if kept.len() > MOST_LINES {
                    kept.remove(0);
                }
            }
            kept
        });
        Ok(Self { child, words })
    }

    /// Why it failed, by its status and its last words.
    async fn judged(self, status: ExitStatus) -> Option<String> {
        // What it started may still hold the pipe.
        let words = timeout(Duration::from_secs(1), self.words).await;
        let last_lines = words.ok().and_then(Result::ok).unwrap_or_default();
        let exit = match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unknown,
        };
        let verdict = judge(&Death {
            model: "the program",
            exit,
            asked: false,
            stuck: false,
            stage: Stage::Serving,
            kernel_oom_kill: false,
            last_lines: &last_lines,
            refused: None,
        });
        match verdict.end {
            End::Expected => None,
            End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason } => {
                Some(reason.to_string())
            }
        }
    }

    /// Ends it and all that it started.
    async fn stop(&mut self) {
        let group = self
            .child
            .id()
            .and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait().await;
    }
}

impl Encounter {
    /// It did not answer all that it was asked, or is gone.
    pub(crate) fn server_failed(&self) -> bool {
        self.server_died || self.tally.failures() > 0
    }
}

impl Order {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::ServerFirst => "the server first, then the program",
            Self::ProgramFirst => "the program first, then the server",
        }
    }
}
