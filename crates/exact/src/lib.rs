//! Gets exact memory figures from the user's own engine, without a GPU (`plimsoll plan --exact`).
//!
//! The engine loads sparse copies of the model files, logs each buffer's size, and is stopped after the last
//! buffer. Answers are cached as long as engine, header, flags and cards stay the same.
//!
//! DECISION: the unmodified engine runs on phantom, a preloaded library that stands in for CUDA, ROCm and
//! Vulkan. So the user's own backend decides the sizes, and no code of ggml is copied.
#![deny(unsafe_code)]

mod arguments;
mod cache;
mod engine_estimate;
mod error;
mod files;
mod installed;
#[cfg(unix)]
mod linux;
mod price;
mod prompt;
mod question;
mod report;
mod run;
mod stamp;
mod terms;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use linux as system;
#[cfg(windows)]
use windows as system;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_base::Card;
use plimsoll_engine::program;
use plimsoll_engine::program::EngineProgram;
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_planner::EngineBuild;
use plimsoll_planner::exact::{EngineRefusal, Transcript};
pub use plimsoll_probe::estimate;
use plimsoll_probe::library;

use self::cache::{Answer, Cache};
pub use self::engine_estimate::EngineEstimate;
pub use self::error::ExactError;
use self::files::{Files, Form};
pub use self::price::Requested;
pub use self::prompt::PromptError;
use self::question::Question;
pub use self::stamp::{of_engine as engine_stamp, of_file as file_stamp};
use self::system::unreachable;
pub use self::terms::{Cancelled, RunTerms};
use self::terms::{Limit, Tally};

// The first run is made twice: with the whole header, and with a header without the vocabulary (five times
// faster). If the sizes agree, later runs use the shorter header.
/// An engine that answers memory questions, with the answers it has given.
#[derive(Debug)]
pub struct Oracle {
    program: EngineProgram,
    phantom: PathBuf,
    terms: RunTerms,
    cache: Option<Cache>,
    /// The header form of further questions.
    form: Cell<Form>,
    /// Number of sockets used so far.
    sockets: Cell<u32>,
    limit: Cell<Option<Limit>>,
    tally: Cell<Tally>,
    engine: Cell<Option<EngineBuild>>,
    /// The engine's word for the cards that it uses.
    interface: Cell<Option<&'static str>>,
    /// Its list of devices, until an answer is kept beside it.
    listed: RefCell<Option<Answer>>,
    files: RefCell<Files>,
    stated: RefCell<HashMap<String, Result<Transcript, EngineRefusal>>>,
}

impl Oracle {
    /// Finds the engine: the named one, otherwise the `llama-server` that the launcher would start.
    pub fn find(named: Option<&Path>, kind: ProgramKind, terms: RunTerms) -> Result<Self, ExactError> {
        if kind != ProgramKind::LlamaServer {
            return Err(ExactError::Program);
        }
        let program = program::find(named)?;
        // The stand-in is preloaded, and static or set-user-ID programs ignore LD_PRELOAD (ld.so(8)).
        if let Some(why) = unreachable(&program.path) {
            return Err(ExactError::Reach { path: program.path, why });
        }
        Ok(Self {
            phantom: library::PHANTOM.find()?,
            cache: terms.keeps.then(Cache::of_user).flatten(),
            terms,
            // The first answer needs the whole header; `open` switches to the shorter one after comparing
            // them.
            form: Cell::new(Form::Whole),
            sockets: Cell::default(),
            limit: Cell::default(),
            tally: Cell::default(),
            engine: Cell::default(),
            interface: Cell::default(),
            listed: RefCell::default(),
            files: RefCell::default(),
            stated: RefCell::default(),
            program,
        })
    }

    /// The file name of the engine.
    pub fn name(&self) -> String {
        self.program.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub fn tally(&self) -> Tally {
        self.tally.get()
    }

    /// Bounds further runs to `runs`, and to `time` from now.
    pub fn limit(&self, runs: u32, time: Duration) {
        let runs = self.tally.get().runs.saturating_add(runs);
        self.limit.set(Some(Limit { runs, end: Instant::now() + time }));
    }

    /// The engine's kind and build: from the cached answer if there is one, otherwise from `--version`.
    /// `None` where the engine does not identify itself.
    pub fn engine(&self, requested: &Options, cards: &[Card]) -> Result<Option<EngineBuild>, ExactError> {
        let question = self.question(requested, cards, Form::Whole)?;
        // Identifying starts the engine once more, so a cached answer is used first.
        if !self.recall(&question.key) {
            self.identify();
        }
        Ok(self.engine.get())
    }

    /// The engine's answer to the user's own flags.
    pub fn ask(&self, requested: &Options, cards: &[Card]) -> Result<Transcript, ExactError> {
        self.answer(requested, cards, Form::Whole)
    }

    /// The kept answer to the user's own flags; the engine is not run.
    pub fn kept(&self, requested: &Options, cards: &[Card]) -> Result<Option<Transcript>, ExactError> {
        if !self.knows_interface(cards) {
            return Ok(None);
        }
        let key = self.question(requested, cards, Form::Whole)?.key;
        Ok(self.recall(&key).then(|| self.stated.borrow().get(&key).cloned()?.ok()).flatten())
    }

    /// Removes the copies of model files and the answers from memory, so that a long-lived process holds
    /// none.
    pub fn forget(&self) {
        self.files.take();
        self.stated.take();
    }

    /// The engine's answer to `asked`. Runs the `likely` next questions in parallel with it.
    pub fn open(
        &self,
        requested: &Options,
        likely: &[Options],
        cards: &[Card],
    ) -> Result<Transcript, ExactError> {
        // The short form of `asked` is in the same batch, so that the comparison costs no extra round.
        let lean = [requested].into_iter().chain(likely).map(|options| (options, Form::Lean));
        let all = [(requested, Form::Whole)].into_iter().chain(lean);
        self.put(all.map(|(options, form)| self.question(options, cards, form)).collect::<Result<_, _>>()?)?;
        let whole = self.answer(requested, cards, Form::Whole)?;
        let lean = self.answer(requested, cards, Form::Lean);
        if lean.is_ok_and(|lean| lean.agrees_with(&whole)) {
            self.form.set(Form::Lean);
        }
        Ok(whole)
    }

    /// The engine's answer to changed flags.
    fn further(&self, options: &Options, cards: &[Card]) -> Result<Transcript, ExactError> {
        match self.answer(options, cards, self.form.get()) {
            // The refusal may come from the missing vocabulary, so only the whole header decides.
            Err(ExactError::Refused(_)) => self.answer(options, cards, Form::Whole),
            answered => answered,
        }
    }

    /// Runs questions that will be asked soon, in parallel.
    fn foresee(&self, options: &[Options], cards: &[Card]) -> Result<(), ExactError> {
        let form = self.form.get();
        let questions = options.iter().map(|options| self.question(options, cards, form));
        self.put(questions.collect::<Result<_, _>>()?)
    }

    fn answer(&self, options: &Options, cards: &[Card], form: Form) -> Result<Transcript, ExactError> {
        self.answer_to(self.question(options, cards, form)?)
    }

    fn answer_to(&self, question: Question<'_>) -> Result<Transcript, ExactError> {
        // `put` consumes the question; the key finds its answer afterwards.
        let key = question.key.clone();
        self.put(vec![question])?;
        let stated = self.stated.borrow().get(&key).cloned();
        Ok(stated.ok_or_else(|| self.spent())??)
    }

    /// The error of a question that the limit left open.
    fn spent(&self) -> ExactError {
        ExactError::Spent { program: self.name(), runs: self.tally.get().runs }
    }

    /// Answers every question that has no answer yet, within the limit.
    fn put(&self, questions: Vec<Question<'_>>) -> Result<(), ExactError> {
        // A search foresees overlapping questions; a duplicate would waste one of the few runs.
        let mut seen = HashSet::new();
        let is_open =
            |question: &Question<'_>| !self.recall(&question.key) && seen.insert(question.key.clone());
        let mut open: Vec<Question<'_>> = questions.into_iter().filter(is_open).collect();
        // Earlier questions matter more: callers list them in the order in which they will be asked.
        open.truncate(self.allowed());
        if open.is_empty() {
            return Ok(());
        }
        // With the first run, so that the answer is kept with the engine's name.
        self.identify();
        let jobs = open.iter().map(|question| self.job(question)).collect::<Result<Vec<_>, _>>()?;
        let (tally, more) = (self.tally.get(), u32::try_from(jobs.len()).unwrap_or(u32::MAX));
        self.tally.set(Tally { runs: tally.runs.saturating_add(more), ..tally });
        let ended = run::run_all(&self.program.path, &jobs, &self.terms);
        // One failed run does not discard the answers of the others; the first error is returned.
        let mut failed = Ok(());
        for (question, ended) in open.into_iter().zip(ended) {
            let stated = match ended {
                // Only answers go to the disk cache: a refusal may be caused by this machine.
                Ok(answer) => Ok(self.keep(&question.key, answer)),
                Err(ExactError::Refused(refusal)) => Err(refusal),
                Err(error) => {
                    failed = failed.and(Err(error));
                    continue;
                }
            };
            self.stated.borrow_mut().insert(question.key, stated);
        }
        failed
    }

    /// True where the answer is known already or is in the on-disk cache.
    fn recall(&self, key: &str) -> bool {
        if self.stated.borrow().contains_key(key) {
            return true;
        }
        let Some(answer) = self.cache.as_ref().and_then(|cache| cache.get(key, Answer::is_whole)) else {
            return false;
        };
        self.engine.set(self.engine.get().or(answer.engine));
        self.keep_devices();
        self.stated.borrow_mut().insert(key.to_owned(), Ok(answer.transcript()));
        let tally = self.tally.get();
        self.tally.set(Tally { kept: tally.kept + 1, ..tally });
        true
    }

    fn keep(&self, key: &str, answer: Answer) -> Transcript {
        let answer = Answer { engine: self.engine.get(), ..answer };
        if let Some(cache) = &self.cache {
            cache.put(key, &answer);
        }
        self.keep_devices();
        answer.transcript()
    }

    /// Asks the engine for its version. Failure is no error: the engine can still report its buffers.
    fn identify(&self) {
        let identify = || program::identify(&self.program).ok().map(|identity| identity.engine);
        self.engine.set(self.engine.get().or_else(identify));
    }

    /// Number of runs that the limit allows now.
    fn allowed(&self) -> usize {
        let Some(limit) = self.limit.get() else { return usize::MAX };
        let left = if Instant::now() < limit.end { limit.runs } else { 0 };
        usize::try_from(left.saturating_sub(self.tally.get().runs)).unwrap_or(usize::MAX)
    }
}
