//! Coexistence test: a server and a second program on the same cards, started in both orders.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_doctor::Diagnosis;
use serde_json::json;
use tokio::time::{Instant as Moment, sleep, sleep_until};

use super::answer::LoadFailure;
use super::figures::Figures;
use super::last_words::LastWords;
use super::program::{Ending, NeighbourProgram};
use super::rounds::{Round, RoundTally, failed_so};
use super::server::LoadTarget;

/// Start-up wait where no card is visible and the program prints nothing.
const LEAD: Duration = Duration::from_secs(3);
/// Interval between measurements of the cards during start-up, and the time without change that ends it.
const LOOK: Duration = Duration::from_millis(250);
const REST: Duration = Duration::from_secs(2);
/// Wait for a program that prints something but takes no memory.
const SPOKEN: Duration = Duration::from_secs(10);
// DECISION: the program counts as started once it prints something, or once the used memory has grown and
// settled. After a fixed wait, a slow program might not have taken its memory yet.
/// Start-up limit of a program that neither prints anything nor takes memory.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// Time for the memory of an unloaded model to be returned.
const UNLOADED: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(20);
/// Pause after a round in which the server refused every request.
const PAUSE: Duration = Duration::from_millis(200);

/// Order of a coexistence test: the side that starts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOrder {
    ServerFirst,
    ProgramFirst,
}

// After the program's end, one more request distinguishes a temporary shortage from a crash. Between the
// orders, the model of a plimsoll server is unloaded.
/// Result of a coexistence test in one order.
#[derive(Clone, Debug)]
pub struct OrderResult {
    pub order: StartOrder,
    pub server: Served,
    pub program: Ending,
    pub notes: Vec<String>,
}

/// The server's results while the second program ran.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Counts and failures, without the times of single answers.
    pub tally: RoundTally,
    /// Longest time to a first token, in milliseconds. Behind plimsoll, a request that waits for the
    /// program's memory is late but not refused.
    pub slowest: f64,
    /// Number of times the server's process had ended.
    pub ended: u64,
    /// Diagnosis of the last log lines (`plimsoll.diagnosis/1`), if the server ended and its log was
    /// readable.
    pub diagnosis: Option<Diagnosis>,
    /// True if the server answers after the program's end; only tested after a failure.
    pub recovered: Option<bool>,
}

/// Settings of a coexistence test.
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
    #[error("the server at {target} fails even without the second program: {failure}")]
    Alone { target: String, failure: String },
    #[error("cannot start the second program: {0}")]
    Start(#[from] io::Error),
}

impl Beside {
    /// Runs both orders, one after the other. `told` is called with progress messages.
    pub async fn try_both(
        &mut self,
        server: &LoadTarget,
        figures: &mut Figures,
        told: &dyn Fn(&str),
    ) -> Result<Vec<OrderResult>, BesideError> {
        self.alone(server).await?;
        told(StartOrder::ServerFirst.words());
        let mut first = self.try_in(StartOrder::ServerFirst, server, figures).await?;
        if first.server.recovered == Some(false) {
            // A second run would measure the damage of the first one.
            let note = "the second order (program first) was not tried, because the server no longer answers";
            first.notes.push(note.to_owned());
            return Ok(vec![first]);
        }
        told(StartOrder::ProgramFirst.words());
        let second = self.try_in(StartOrder::ProgramFirst, server, figures).await?;
        Ok(vec![first, second])
    }

    /// Runs one round with the server alone. A failure here is the server's own.
    async fn alone(&mut self, server: &LoadTarget) -> Result<(), BesideError> {
        let fails = |failure: String| BesideError::Alone { target: server.target.to_string(), failure };
        let begun = server.begin(self.patience).await;
        begun.map_err(|failure| fails(failure.to_string()))?;
        // The yardstick needs a loaded model, and loading it beside the program would change the test.
        self.round.yardstick = server.yardstick(self.patience).await;
        let tally = self.round(server, 0, None).await;
        match tally.failed.first_key_value() {
            Some((kind, (count, texts))) => Err(fails(failed_so(kind, *count, texts))),
            None => Ok(()),
        }
    }

    /// Repeats a request until it is answered: the program's memory may be released with a delay.
    async fn answers(&self, server: &LoadTarget) -> Result<(), LoadFailure> {
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
        order: StartOrder,
        server: &LoadTarget,
        figures: &mut Figures,
    ) -> Result<OrderResult, BesideError> {
        let mut notes = Vec::new();
        if order == StartOrder::ProgramFirst {
            notes.extend(step_back(server, figures).await);
        }
        // Found again in each order: unloading a model ends its process.
        figures.follow(server).await;
        // Read before the start, so that the program's first allocation is seen as growth.
        let before = figures.taken().await;
        let mut program = NeighbourProgram::start(&self.command)?;
        if order == StartOrder::ProgramFirst {
            notes.extend(come_up(&mut program, figures, before).await?);
        }
        let (mut served, program) = self.held(program, server, figures, &mut notes).await?;
        if served.failed() {
            served.recovered = Some(self.answers(server).await.is_ok());
        }
        Ok(OrderResult { order, server: served, program, notes })
    }

    /// Load until the program has ended, or has had its time.
    async fn held(
        &self,
        mut program: NeighbourProgram,
        server: &LoadTarget,
        figures: &mut Figures,
        notes: &mut Vec<String>,
    ) -> Result<(Served, Ending), BesideError> {
        let mut served = Served::default();
        let end = Moment::now() + self.limit;
        // Opened while the process lives: `/proc/PID/fd` is gone once it has ended.
        let mut log = figures.process().and_then(LastWords::of);
        let mut number = 1;
        loop {
            let mut round = pin!(self.round(server, number, Some(end)));
            let tally = tokio::select! {
                tally = &mut round => tally,
                () = sleep_until(end) => {
                    notes.push(format!("the program was stopped after {} s", self.limit.as_secs()));
                    let ending = program.stopped().await;
                    // Dropping the round would leave requests in flight for the next order.
                    served.add(round.await);
                    if served.tally.unanswered > 0 {
                        notes.push(format!("{} requests had no answer at that time", served.tally.unanswered));
                    }
                    return Ok((served, ending));
                }
            };
            served.add(tally);
            // Checked before `follow`, which would replace a dead process by its successor.
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

    async fn round(&self, server: &LoadTarget, number: u64, end: Option<Moment>) -> RoundTally {
        let clients = (0..self.clients).map(|_| server.client(self.patience)).collect();
        let (_, tally) = self.round.hold(clients, &server.model, number, u64::MAX, end).await;
        // A server that is down refuses at once, and the loop would spin.
        if tally.answered == 0 {
            sleep(PAUSE).await;
        }
        tally
    }
}

/// Unloads the model, if the server supports that.
async fn step_back(server: &LoadTarget, figures: &Figures) -> Option<String> {
    if !server.is_plimsoll {
        return Some(
            "this server keeps its model loaded, so the test cannot load the model after the program has \
                started; with plimsoll serve it can"
                .to_owned(),
        );
    }
    let unloaded = server.post("/models/unload", &json!({ "model": server.model }), SOON).await;
    // The response may come before the end of the engine's process, and the driver releases memory after it.
    let start = Instant::now();
    while figures.process().is_some_and(|process| process.lives()) && start.elapsed() < SOON {
        sleep(LOOK).await;
    }
    sleep(UNLOADED).await;
    unloaded
        .err()
        .map(|failure| format!("the model could not be unloaded before the program was started: {failure}"))
}

/// Waits until the program has its memory. Returns a note if it never took any.
async fn come_up(
    program: &mut NeighbourProgram,
    figures: &Figures,
    before: Option<Bytes>,
) -> io::Result<Option<String>> {
    let start = Instant::now();
    let (mut last, mut since) = (before, start);
    while start.elapsed() < UP_WITHIN {
        if program.ends_within(LOOK).await {
            return Ok(Some("the program ended before the first request to the server".to_owned()));
        }
        let taken = figures.taken().await;
        if taken != last {
            (last, since) = (taken, Instant::now());
        }
        // Where memory is visible, growth is required: many programs print a warning long before they
        // allocate.
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
        "the program allocated no GPU memory within {seconds} s; after that time the test sent its requests \
            to the server"
    )))
}

impl Served {
    fn add(&mut self, mut tally: RoundTally) {
        self.slowest = self.slowest.max(tally.slowest().unwrap_or_default());
        // Times of single answers are dropped; a test of an hour would keep too many.
        tally.speeds.clear();
        tally.first_tokens.clear();
        self.tally.add(tally);
    }

    /// True if a request failed or the server's process ended.
    pub fn failed(&self) -> bool {
        self.ended > 0 || self.tally.failures() > 0
    }
}

impl OrderResult {
    pub fn failed(&self) -> bool {
        self.server.failed() || self.program.failed
    }
}

impl StartOrder {
    pub fn words(self) -> &'static str {
        match self {
            Self::ServerFirst => "the server first, then the program",
            Self::ProgramFirst => "the program first, then the server",
        }
    }
}
