//! Asks the user's own engine what a model takes, without a GPU: `plimsoll plan --exact`.
//!
//! DECISION: the engine runs unmodified, with a backend that claims to be CUDA and has no memory behind it
//! (`libplimsoll_phantom.so`), on copies of the model files that are headers with a hole behind them. It
//! walks its whole load path, writes what each buffer takes into its log, and is stopped as soon as it has.
//! No card is opened, no weight is read, and nothing listens but a socket in a folder of ours. What an engine
//! said is kept for as long as engine, header, flags and cards stay the same.
//!
//! The user's flags are asked with the whole header, and once more without its vocabulary, which takes a
//! fifth of the time. Where both report the same sizes, as they did for every model and build that was tried,
//! all further questions use the short header. Questions that are known together run side by side.
//!
//! `question` is what is asked, `arguments` what the engine is given, `files` makes the copies, `run` runs
//! it, `cache` keeps answers, `stamp` tells whether an engine is still the same, `price` puts the questions
//! of a search.
#![forbid(unsafe_code)]

mod arguments;
mod cache;
mod error;
mod files;
mod price;
mod question;
mod run;
mod stamp;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_base::Card;
use plimsoll_flags::{Options, Program};
use plimsoll_launch::engine;
use plimsoll_launch::engine::EngineProgram;
use plimsoll_planner::Engine;
use plimsoll_planner::exact::{Refusal, Transcript};
use plimsoll_probe::guard::unreachable;
use plimsoll_probe::library;

use self::cache::{Answer, Cache};
pub use self::error::ExactError;
use self::files::{Files, Form};
pub use self::price::Asked;
use self::question::Question;

/// An engine that can be asked.
#[derive(Debug)]
pub struct Oracle {
    program: EngineProgram,
    kind: Program,
    phantom: PathBuf,
    cache: Option<Cache>,
    /// The form of the headers for further questions.
    form: Cell<Form>,
    /// Runs so far have had sockets of these numbers.
    sockets: Cell<u32>,
    limit: Cell<Option<Limit>>,
    tally: Cell<Tally>,
    engine: Cell<Option<Engine>>,
    files: RefCell<Files>,
    said: RefCell<HashMap<String, Result<Transcript, Refusal>>>,
}

/// Remaining runs of the engine, and their deadline.
#[derive(Clone, Copy, Debug)]
struct Limit {
    runs: u32,
    end: Instant,
}

/// Cost of the answers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs of the engine.
    runs: u32,
    /// Answers that were kept from before.
    kept: u32,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.runs {
            1 => f.write_str("1 run of the engine")?,
            runs => write!(f, "{runs} runs of the engine")?,
        }
        match self.kept {
            0 => Ok(()),
            1 => f.write_str(", 1 answer was kept from before"),
            kept => write!(f, ", {kept} answers were kept from before"),
        }
    }
}

impl Oracle {
    /// Finds the engine: the one named, else `llama-server` where engines are looked for.
    pub fn find(named: Option<&Path>, kind: Program, keeps: bool) -> Result<Self, ExactError> {
        let program = match kind {
            Program::LlamaServer => engine::find(named)?,
            Program::LlamaFitParams => fit_params(named)?,
            Program::LlamaCli => return Err(ExactError::Program("llama-cli")),
            Program::Library => return Err(ExactError::Program("a program on the C API")),
        };
        if let Some(why) = unreachable(&program.path) {
            return Err(ExactError::Reach {
                path: program.path,
                why,
            });
        }
        Ok(Self {
            phantom: library::PHANTOM.find()?,
            cache: keeps.then(Cache::of_user).flatten(),
            form: Cell::new(Form::Whole),
            sockets: Cell::default(),
            limit: Cell::default(),
            tally: Cell::default(),
            engine: Cell::default(),
            files: RefCell::default(),
            said: RefCell::default(),
            program,
            kind,
        })
    }

    /// Returns the file name of the engine.
    pub fn name(&self) -> String {
        let name = self.program.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub fn tally(&self) -> Tally {
        self.tally.get()
    }

    /// From now on so many runs more, and no longer than this.
    pub fn limit(&self, runs: u32, time: Duration) {
        let end = Instant::now() + time;
        self.limit.set(Some(Limit { runs, end }));
    }

    /// Returns the engine's kind and build as of the cached answer, else as of now; `None` where unknown.
    pub fn engine(&self, asked: &Options, cards: &[Card]) -> Result<Option<Engine>, ExactError> {
        let question = self.question(asked, cards, Form::Whole)?;
        if !self.recall(&question.key) {
            self.identify();
        }
        Ok(self.engine.get())
    }

    /// Asks the engine about the user's own flags.
    pub fn ask(&self, asked: &Options, cards: &[Card]) -> Result<Transcript, ExactError> {
        self.answer(asked, cards, Form::Whole)
    }

    /// The same, and beside it what it says to `likely`, because they will be asked next.
    pub fn open(
        &self,
        asked: &Options,
        likely: &[Options],
        cards: &[Card],
    ) -> Result<Transcript, ExactError> {
        let lean = [asked].into_iter().chain(likely);
        let lean = lean.map(|options| self.question(options, cards, Form::Lean));
        let whole = [self.question(asked, cards, Form::Whole)];
        let questions: Result<Vec<_>, _> = whole.into_iter().chain(lean).collect();
        self.put(questions?)?;
        let whole = self.answer(asked, cards, Form::Whole)?;
        let lean = self.answer(asked, cards, Form::Lean);
        if lean.is_ok_and(|lean| lean.agrees_with(&whole)) {
            self.form.set(Form::Lean);
        }
        Ok(whole)
    }

    /// Asks the engine about other flags.
    fn further(&self, options: &Options, cards: &[Card]) -> Result<Transcript, ExactError> {
        match self.answer(options, cards, self.form.get()) {
            // It may be the lack of a vocabulary that is refused.
            Err(ExactError::Refused(_)) => self.answer(options, cards, Form::Whole),
            answered => answered,
        }
    }

    /// Puts questions that will be asked, side by side.
    fn foresee(&self, options: &[Options], cards: &[Card]) -> Result<(), ExactError> {
        let form = self.form.get();
        let questions = options.iter().map(|options| self.question(options, cards, form));
        self.put(questions.collect::<Result<_, _>>()?)
    }

    fn answer(&self, options: &Options, cards: &[Card], form: Form) -> Result<Transcript, ExactError> {
        let question = self.question(options, cards, form)?;
        let key = question.key.clone();
        self.put(vec![question])?;
        match self.said.borrow().get(&key) {
            Some(said) => Ok(said.clone()?),
            None => Err(ExactError::Spent {
                program: self.name(),
                runs: self.tally.get().runs,
            }),
        }
    }

    /// Sees to it that every question has an answer, as far as the limit reaches.
    fn put(&self, questions: Vec<Question<'_>>) -> Result<(), ExactError> {
        let mut open: Vec<Question<'_>> = Vec::new();
        for question in questions {
            let known = self.recall(&question.key) || open.iter().any(|other| other.key == question.key);
            if !known {
                open.push(question);
            }
        }
        // Questions beyond the limit stay unanswered; `answer` reports them as spent.
        open.truncate(self.allowed());
        if open.is_empty() {
            return Ok(());
        }
        self.identify();
        let jobs = open.iter().map(|question| self.job(question));
        let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        self.count(jobs.len());
        let ended = run::run_all(&self.program.path, &jobs);
        let mut failed = Ok(());
        for (question, ended) in open.into_iter().zip(ended) {
            let said = match ended {
                Ok(lines) => Ok(self.keep(&question.key, lines)),
                Err(ExactError::Refused(refusal)) => Err(refusal),
                Err(error) => {
                    failed = Err(error);
                    continue;
                }
            };
            self.said.borrow_mut().insert(question.key, said);
        }
        failed
    }

    /// True where the answer is known, or was kept from before.
    fn recall(&self, key: &str) -> bool {
        if self.said.borrow().contains_key(key) {
            return true;
        }
        let Some(answer) = self.cache.as_ref().and_then(|cache| cache.get(key)) else {
            return false;
        };
        self.engine.set(self.engine.get().or(answer.engine()));
        self.said
            .borrow_mut()
            .insert(key.to_owned(), Ok(answer.transcript()));
        let tally = self.tally.get();
        self.tally.set(Tally {
            kept: tally.kept + 1,
            ..tally
        });
        true
    }

    fn keep(&self, key: &str, lines: Vec<String>) -> Transcript {
        let answer = Answer::new(self.engine.get(), lines);
        if let Some(cache) = &self.cache {
            cache.put(key, &answer);
        }
        answer.transcript()
    }

    /// An engine that does not say what it is can still say what it takes.
    fn identify(&self) {
        if self.engine.get().is_none() {
            let identity = engine::identify(&self.program).ok();
            self.engine.set(identity.map(|identity| identity.engine));
        }
    }

    /// Returns the number of runs that the limit still allows.
    fn allowed(&self) -> usize {
        let Some(limit) = self.limit.get() else {
            return usize::MAX;
        };
        let runs = if Instant::now() < limit.end { limit.runs } else { 0 };
        usize::try_from(runs).unwrap_or(usize::MAX)
    }

    fn count(&self, runs: usize) {
        let runs = u32::try_from(runs).unwrap_or(u32::MAX);
        let tally = self.tally.get();
        self.tally.set(Tally {
            runs: tally.runs.saturating_add(runs),
            ..tally
        });
        self.limit.set(self.limit.get().map(|limit| Limit {
            runs: limit.runs.saturating_sub(runs),
            ..limit
        }));
    }
}

/// `llama-fit-params`, named or beside the server.
fn fit_params(named: Option<&Path>) -> Result<EngineProgram, ExactError> {
    const NAME: &str = "llama-fit-params";
    if named.is_some_and(|path| path.ends_with(NAME)) {
        return Ok(engine::find(named)?);
    }
    let server = engine::find(named)?;
    let beside = server.path.with_file_name(NAME);
    if beside.is_file() {
        return Ok(EngineProgram {
            path: beside,
            ..server
        });
    }
    Err(ExactError::FindBeside(server.path))
}
