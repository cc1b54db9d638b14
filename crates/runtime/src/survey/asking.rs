//! Runs engines without a card to learn a model's memory, one at a time on a low-priority thread.
//!
//! DECISION: one engine runs at a time and at low priority, so that it delays no request. Each query is made
//! once in the daemon's life. If an engine fails or takes too much memory, the same query is not repeated. An
//! engine that hangs is queried no more. In these cases the planner's formulas stay in use.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Card};
use plimsoll_exact::{Cancelled, ExactError, Oracle, RunTerms};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_planner::exact::Transcript;
use plimsoll_probe::library::PHANTOM;
use plimsoll_process::Environment;
use rustix::process::setpriority_process;
use tokio::sync::mpsc;

/// Resident memory of an engine that is asked; llama.cpp takes some 60 MiB for a model of a trillion
/// parameters.
const MEMORY: Bytes = Bytes::gib(1);
/// Answers and failures that are remembered; beyond that all are forgotten, and the files are read again.
const REMEMBERED: usize = 4096;
/// Priority of asked engines (nice(2)): a tenth of a computing engine's share on the same core, so that a
/// busy machine does not starve them.
const NICE: i32 = 10;
/// Time for an answer, at that priority.
const TIME: Duration = Duration::from_secs(60);

/// Flags of a model on described cards, and the engine to ask.
#[derive(Clone, Debug)]
pub(super) struct ExactQuestion {
    /// Everything that the answer depends on.
    pub(super) key: String,
    pub(super) model: String,
    pub(super) engine: RequestedEngine,
    pub(super) options: Options,
    pub(super) cards: Vec<Card>,
}

/// An engine's program, its environment, and the state of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedEngine {
    pub(super) program: PathBuf,
    pub(super) environment: Environment,
    pub(super) stamp: String,
}

/// Time that a survey has for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// None: a load waits for nothing.
    Known,
    /// As long as it takes to read a kept answer.
    Kept,
    /// Until this moment.
    Until(Instant),
}

/// Answers of engines, shared by every survey of the daemon.
#[derive(Clone, Debug)]
pub struct ExactAnswers(Arc<SharedAnswers>);

#[derive(Debug)]
struct SharedAnswers {
    ledger: Mutex<AnswerLedger>,
    changed: Condvar,
    cancelled: Cancelled,
    /// Takes the names of models whose answers have arrived.
    news: Option<mpsc::UnboundedSender<String>>,
    /// Without the library that stands in for a card, no engine can be asked.
    is_possible: bool,
}

#[derive(Debug, Default)]
struct AnswerLedger {
    known: HashMap<String, QuestionProgress>,
    queue: VecDeque<ExactQuestion>,
    /// Stamps of engines that cannot be asked.
    unaskable: HashSet<String>,
    worker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum QuestionProgress {
    Waiting,
    Answered(Arc<Transcript>),
    /// The engine failed to answer, and is not asked this again.
    Failed,
}

impl ExactAnswers {
    pub fn new(news: Option<mpsc::UnboundedSender<String>>) -> Self {
        let found = PHANTOM.find();
        if let Err(error) = &found {
            tracing::debug!(
                "engines cannot be asked for the memory of models, so plans use formulas: \
                {error}"
            );
        }
        Self(Arc::new(SharedAnswers {
            ledger: Mutex::default(),
            changed: Condvar::new(),
            cancelled: Cancelled::default(),
            news,
            is_possible: found.is_ok(),
        }))
    }

    /// The answer to a question if it is there in time; else the question waits in the queue.
    pub(super) fn ask(&self, question: ExactQuestion, patience: Patience) -> Option<Arc<Transcript>> {
        let shared = &self.0;
        if !shared.is_possible || shared.cancelled.is_set() {
            return None;
        }
        let key = question.key.clone();
        let mut ledger = shared.ledger();
        if !ledger.known.contains_key(&key) {
            if ledger.unaskable.contains(&question.engine.stamp) {
                return None;
            }
            if patience == Patience::Kept {
                // Files are read without the lock, which loads take.
                drop(ledger);
                let kept = shared.kept(&question);
                ledger = shared.ledger();
                if let Some(kept) = kept {
                    ledger.known.insert(key, QuestionProgress::Answered(Arc::clone(&kept)));
                    return Some(kept);
                }
            }
            ledger.enqueue(question);
            shared.changed.notify_all();
            if ledger.worker.is_none() {
                ledger.worker = Self::work(Arc::clone(shared));
            }
        }
        while let Patience::Until(end) = patience
            && matches!(ledger.known.get(&key), Some(QuestionProgress::Waiting))
            && Instant::now() < end
        {
            let left = end.saturating_duration_since(Instant::now());
            ledger = match shared.changed.wait_timeout(ledger, left) {
                Ok((ledger, _)) => ledger,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        match ledger.known.get(&key) {
            Some(QuestionProgress::Answered(stated)) => Some(Arc::clone(stated)),
            _ => None,
        }
    }

    /// Ends the engine that is being asked, and asks no other.
    pub fn end(&self) {
        self.0.cancelled.set();
        let worker = self.0.ledger().worker.take();
        self.0.changed.notify_all();
        // The worker removes the copies of model files that it has made.
        drop(worker.map(JoinHandle::join));
    }

    fn work(shared: Arc<SharedAnswers>) -> Option<JoinHandle<()>> {
        let work = move || {
            // On Linux this is the thread's own priority, which the engines inherit.
            let _ = setpriority_process(None, NICE);
            shared.answer_all();
        };
        let started = thread::Builder::new().name("plimsoll-ask".to_owned()).spawn(work);
        started
            .inspect_err(|error| {
                tracing::debug!(
                    "engines cannot be asked for the memory of models, so \
            plans use formulas: {error}"
                )
            })
            .ok()
    }
}

impl AnswerLedger {
    fn enqueue(&mut self, question: ExactQuestion) {
        if self.known.len() >= REMEMBERED {
            self.known.clear();
            self.queue.clear();
        }
        self.known.insert(question.key.clone(), QuestionProgress::Waiting);
        self.queue.push_back(question);
    }
}

impl SharedAnswers {
    fn ledger(&self) -> MutexGuard<'_, AnswerLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers questions until the daemon ends.
    fn answer_all(&self) {
        let mut last: Option<(RequestedEngine, Oracle)> = None;
        while let Some(question) = self.next() {
            let (engine, oracle) = match last.take().filter(|(engine, _)| *engine == question.engine) {
                Some(same) => same,
                None => match self.oracle(&question.engine) {
                    Ok(oracle) => (question.engine.clone(), oracle),
                    Err(error) => {
                        self.fail(&question, &error);
                        continue;
                    }
                },
            };
            tracing::debug!(
                "asking the engine {} how much memory {} takes",
                engine.program.display(),
                question.model
            );
            match oracle.ask(&question.options, &question.cards) {
                Ok(stated) => self.succeed(&question, stated),
                Err(error) => self.fail(&question, &error),
            }
            oracle.forget();
            last = Some((engine, oracle));
        }
    }

    /// The next question; `None` at the end.
    fn next(&self) -> Option<ExactQuestion> {
        let mut ledger = self.ledger();
        loop {
            if self.cancelled.is_set() {
                return None;
            }
            match ledger.queue.pop_front() {
                Some(question) if ledger.unaskable.contains(&question.engine.stamp) => {
                    ledger.known.insert(question.key, QuestionProgress::Failed);
                    self.changed.notify_all();
                }
                Some(question) => return Some(question),
                None => ledger = self.changed.wait(ledger).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn oracle(&self, engine: &RequestedEngine) -> Result<Oracle, ExactError> {
        let terms = RunTerms {
            environment: engine.environment.clone(),
            time: TIME,
            memory: Some(MEMORY),
            cancelled: self.cancelled.clone(),
            keeps: true,
        };
        Oracle::find(Some(&engine.program), ProgramKind::LlamaServer, terms)
    }

    fn kept(&self, question: &ExactQuestion) -> Option<Arc<Transcript>> {
        let oracle = self.oracle(&question.engine).ok()?;
        Some(Arc::new(oracle.kept(&question.options, &question.cards).ok()??))
    }

    fn succeed(&self, question: &ExactQuestion, stated: Transcript) {
        let answered = QuestionProgress::Answered(Arc::new(stated));
        self.ledger().known.insert(question.key.clone(), answered);
        self.changed.notify_all();
        if let Some(news) = &self.news {
            let _ = news.send(question.model.clone());
        }
    }

    fn fail(&self, question: &ExactQuestion, error: &ExactError) {
        let mut ledger = self.ledger();
        ledger.known.insert(question.key.clone(), QuestionProgress::Failed);
        let text = error.to_string();
        // The advice after the first line is for `plan --exact`.
        let text = text.lines().next().unwrap_or_default();
        // An engine that hangs would do so for every model.
        if error.is_unaskable() || matches!(error, ExactError::Wait { .. }) {
            ledger.unaskable.insert(question.engine.stamp.clone());
        }
        if error.is_unaskable() {
            let program = question.engine.program.display();
            tracing::debug!("{program} cannot report the memory of its models: {text}");
        } else if !self.cancelled.is_set() {
            tracing::info!("model {}  is planned by formulas, not by its engine: {text}", question.model);
        }
        drop(ledger);
        self.changed.notify_all();
    }
}
