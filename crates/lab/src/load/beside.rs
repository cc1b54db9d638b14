//! Soak of a second program beside the server, in both orders.
//!
//! DECISION: first the server is under load and the program comes; then the program has its memory and the
//! server is asked. Behind plimsoll the model is unloaded between the two, so that it really comes second;
//! any other server keeps its model, and that is said. The program is there once it says a word, or once what
//! the cards hold has grown and rests: a fixed wait would let a slow import of PyTorch come last. What fails
//! before the other is there is told as its own fault. After the program's end the server is asked once more,
//! so that a moment's want is told from an end.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_doctor::Diagnosis;
use serde_json::json;
use tokio::time::{sleep, sleep_until};

use super::answer::Failure;
use super::figures::Figures;
use super::last_words::LastWords;
use super::program::{Ending, Program};
use super::rounds::{Round, Tally, failed_so};
use super::server::Server;

/// Head start of a silent program where no card is visible.
const LEAD: Duration = Duration::from_secs(3);
/// Cards are looked at so often while the program comes up, and rest for so long when it has.
const LOOK: Duration = Duration::from_millis(250);
const REST: Duration = Duration::from_secs(2);
/// Head start of a program that prints but allocates nothing.
const SPOKEN: Duration = Duration::from_secs(10);
/// A program that neither speaks nor takes anything by then is not waited for.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// An unloaded model's memory is back by then.
const UNLOADED: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(20);
/// A server that refuses at once is not asked in a frenzy.
const PAUSE: Duration = Duration::from_millis(200);

/// Order of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    ServerFirst,
    ProgramFirst,
}

/// Outcome of one order.
#[derive(Clone, Debug)]
pub struct Encounter {
    pub order: Order,
    pub server: Served,
    pub program: Ending,
    pub notes: Vec<String>,
}

/// Outcome of the server beside the program.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Without the times of single answers.
    pub tally: Tally,
    /// Longest wait for a first token in milliseconds: a request that waits for memory is late, not refused.
    pub slowest: f64,
    /// So many times its process was gone.
    pub ended: u64,
    /// By the last lines of its log (`plimsoll.diagnosis/1`), where it ended and these could be read.
    pub diagnosis: Option<Diagnosis>,
    /// True if it answered after the program had exited; checked only after a failure.
    pub recovered: Option<bool>,
}

/// Settings of the test.
#[derive(Clone, Debug)]
pub struct Beside {
    pub command: String,
    pub round: Round,
    pub clients: usize,
    pub patience: Duration,
    /// Time limit of the program.
    pub limit: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    #[error("{target} fails by itself, before anything is beside it: {failure}")]
    Alone { target: String, failure: String },
    #[error("cannot start the second program: {0}")]
    Start(#[from] io::Error),
}

impl Beside {
    /// Both orders, one after the other. `told` hears what is going on.
    pub async fn try_both(
        &mut self,
        server: &Server,
        figures: &mut Figures,
        told: &dyn Fn(&str),
    ) -> Result<Vec<Encounter>, BesideError> {
        self.alone(server).await?;
        told(Order::ServerFirst.words());
        let mut first = self.try_in(Order::ServerFirst, server, figures).await?;
        if first.server.recovered == Some(false) {
            let note = "the other order was not tried: the server does not answer any more";
            first.notes.push(note.to_owned());
            return Ok(vec![first]);
        }
        told(Order::ProgramFirst.words());
        let second = self.try_in(Order::ProgramFirst, server, figures).await?;
        Ok(vec![first, second])
    }

    /// The server loads its model and holds a round with nothing beside it. What fails here is its own fault.
    async fn alone(&mut self, server: &Server) -> Result<(), BesideError> {
        let fails = |failure: String| BesideError::Alone {
            target: server.target.to_string(),
            failure,
        };
        let begun = server.begin(self.patience).await;
        begun.map_err(|failure| fails(failure.to_string()))?;
        self.round.yardstick = server.yardstick(self.patience).await;
        let tally = self.round(server, 0).await;
        match tally.failed.first_key_value() {
            Some((kind, (count, texts))) => Err(fails(failed_so(kind, *count, texts))),
            None => Ok(()),
        }
    }

    /// Asks until there is an answer: what was on the cards before may leave only now.
    async fn answers(&self, server: &Server) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            match server.begin(self.patience).await {
                Err(failure) if start.elapsed() >= SOON => return Err(failure),
                Err(_) => sleep(PAUSE * 5).await,
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn try_in(
        &self,
        order: Order,
        server: &Server,
        figures: &mut Figures,
    ) -> Result<Encounter, BesideError> {
        let mut notes = Vec::new();
        if order == Order::ProgramFirst {
            notes.extend(step_back(server).await);
        }
        figures.follow(server).await;
        let before = figures.taken().await;
        let mut program = Program::start(&self.command)?;
        if order == Order::ProgramFirst {
            notes.extend(come_up(&mut program, figures, before).await?);
        }
        let (mut served, program) = self.held(program, server, figures, &mut notes).await?;
        if served.failed() {
            served.recovered = Some(self.answers(server).await.is_ok());
        }
        Ok(Encounter {
            order,
            server: served,
            program,
            notes,
        })
    }

    /// Load until the program has ended, or has had its time.
    async fn held(
        &self,
        mut program: Program,
        server: &Server,
        figures: &mut Figures,
        notes: &mut Vec<String>,
    ) -> Result<(Served, Ending), BesideError> {
        let mut served = Served::default();
        let end = tokio::time::Instant::now() + self.limit;
        let mut log = figures.process().and_then(LastWords::of);
        let mut number = 1;
        loop {
            let mut round = pin!(self.round(server, number));
            let tally = tokio::select! {
                tally = &mut round => tally,
                () = sleep_until(end) => {
                    notes.push(format!("the program had not ended after {} s", self.limit.as_secs()));
                    let ending = program.stopped().await;
                    served.add(round.await);
                    return Ok((served, ending));
                }
            };
            served.add(tally);
            if figures.process().is_some_and(|process| !process.lives()) {
                served.ended += 1;
                served.diagnosis = served.diagnosis.or(log.take().and_then(LastWords::judged));
            }
            if figures.follow(server).await {
                log = figures.process().and_then(LastWords::of);
            }
            if let Some(status) = program.ended()? {
                return Ok((served, program.judged(status).await));
            }
            number += 1;
        }
    }

    async fn round(&self, server: &Server, number: u64) -> Tally {
        let clients = (0..self.clients).map(|_| server.client(self.patience)).collect();
        let (_, tally) = self.round.hold(clients, &server.model, number, u64::MAX).await;
        if tally.answered == 0 {
            sleep(PAUSE).await;
        }
        tally
    }
}

/// Takes the model off the cards, where the server can.
async fn step_back(server: &Server) -> Option<String> {
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

/// Waits until the program has what it wants of the cards; what there is to say of that.
async fn come_up(
    program: &mut Program,
    figures: &Figures,
    before: Option<Bytes>,
) -> io::Result<Option<String>> {
    let start = Instant::now();
    let (mut last, mut since) = (before, start);
    while start.elapsed() < UP_WITHIN {
        if program.ends_within(LOOK).await {
            return Ok(Some(
                "the program ended before the server was asked for anything".to_owned(),
            ));
        }
        let taken = figures.taken().await;
        if taken != last {
            (last, since) = (taken, Instant::now());
        }
        // A warning at the start is no sign of memory, where memory can be seen.
        let is_there = match taken {
            Some(_) => taken > before && (program.has_spoken() || since.elapsed() >= REST),
            None => program.has_spoken() || start.elapsed() >= LEAD,
        };
        if is_there || (program.has_spoken() && start.elapsed() >= SPOKEN) {
            return Ok(None);
        }
    }
    let seconds = UP_WITHIN.as_secs();
    Ok(Some(format!(
        "the program took no memory of a card within {seconds} s; the server was asked then"
    )))
}

impl Served {
    fn add(&mut self, mut tally: Tally) {
        self.slowest = self.slowest.max(tally.slowest().unwrap_or_default());
        tally.speeds.clear();
        tally.first_tokens.clear();
        self.tally.add(tally);
    }

    /// It did not answer all that it was asked, or was gone.
    pub fn failed(&self) -> bool {
        self.ended > 0 || self.tally.failures() > 0
    }
}

impl Encounter {
    pub fn failed(&self) -> bool {
        self.server.failed() || self.program.failed
    }
}

impl Order {
    pub fn words(self) -> &'static str {
        match self {
            Self::ServerFirst => "the server first, then the program",
            Self::ProgramFirst => "the program first, then the server",
        }
    }
}
