//! Asks the user's own engine what a model takes, without a GPU: `plimsoll plan --exact`.
//!
//! DECISION: the engine runs unmodified, with a backend that claims to be CUDA and has no memory behind it
//! (`libplimsoll_phantom.so`), on copies of the model files that are headers with a hole behind them. It walks its whole
//! load path, writes what each buffer takes into its log, and is stopped as soon as it has. No card is opened, no weight is
//! read, and nothing listens but a socket in a folder of ours. What an engine said is kept for as long as engine, header,
//! flags and cards stay the same.
//!
//! `arguments` says what the engine is given, `files` makes the copies, `run` runs it, `cache` keeps answers, `stamp` tells
//! whether an engine is still the same.

mod arguments;
mod cache;
mod files;
mod largest;
mod run;
mod stamp;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::flags::{FlagError, Options, Program};
use plimsoll_core::place::{Card, CardKind};
use plimsoll_core::plan::exact::{Refusal, Transcript};
use plimsoll_core::plan::{Engine, PlanError};
use plimsoll_wire::env as names;

use crate::folder::OwnedFolder;
use crate::guard::{Unreachable, unreachable};
use crate::launch::engine::{self, EngineError, EngineProgram};
use crate::library::{self, FindLibraryError};
use crate::probe::headers::ReadModelError;
use arguments::Given;
use cache::{Answer, Cache};
use files::Copies;
pub(crate) use largest::largest_context;

const FOLDER: &str = "plimsoll-exact-";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExactError {
    #[error(transparent)]
    Find(#[from] EngineError),
    #[error(
        "{} has no llama-fit-params beside it\nhint: name it with --exact=PATH, or leave --program out", .0.display()
    )]
    FindBeside(PathBuf),
    #[error("the engine {} cannot be asked: {why}\nhint: name another with --exact=ENGINE", path.display())]
    Reach { path: PathBuf, why: Unreachable },
    #[error("{0} has no --exact: only llama-server and llama-fit-params tell what they take")]
    Program(&'static str),
    #[error(transparent)]
    Library(#[from] FindLibraryError),
    #[error(transparent)]
    Read(#[from] ReadModelError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error("cannot make a folder for copies of the model's header: {0}")]
    Folder(io::Error),
    #[error("cannot copy the header of {} to {}: {error}", from.display(), to.display())]
    Copy {
        from: PathBuf,
        to: PathBuf,
        error: io::Error,
    },
    #[error("cannot start {}: {error}", path.display())]
    Start { path: PathBuf, error: io::Error },
    #[error(
        "{} told nothing more for {seconds} s; its last line: {last}\nhint: leave --exact out for the closed forms",
        path.display()
    )]
    Wait {
        path: PathBuf,
        seconds: u64,
        last: String,
    },
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// An engine that can be asked.
#[derive(Debug)]
pub(crate) struct Oracle {
    program: EngineProgram,
    kind: Program,
    phantom: PathBuf,
    cards: Vec<Card>,
    cache: Option<Cache>,
    engine: Option<Engine>,
}

impl Oracle {
    /// Finds the engine: the one named, else `llama-server` where engines are looked for.
    pub(crate) fn find(
        named: Option<&Path>,
        kind: Program,
        cards: &[Card],
        keeps: bool,
    ) -> Result<Self, ExactError> {
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
            cards: cards
                .iter()
                .filter(|card| card.kind == CardKind::Cuda)
                .cloned()
                .collect(),
            cache: keeps.then(Cache::of_user).flatten(),
            engine: None,
            program,
            kind,
        })
    }

    /// How the engine is called: the name of its file.
    pub(crate) fn name(&self) -> String {
        let name = self.program.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Which engine it is, once it was asked something; `None` where it does not say.
    pub(crate) fn engine(&self) -> Option<Engine> {
        self.engine
    }

    /// What the engine says to these flags.
    pub(crate) fn ask(&mut self, options: &Options) -> Result<Transcript, ExactError> {
        let given = Given {
            kind: self.kind,
            cards: self.cards.len(),
            options,
        };
        let key = self.key(&given)?;
        if let Some(answer) = self.cache.as_ref().and_then(|cache| cache.get(&key)) {
            self.engine = answer.engine();
            return Ok(answer.transcript());
        }
        // An engine that does not say what it is can still say what it takes.
        let engine = self.engine.or_else(|| {
            engine::identify(&self.program)
                .ok()
                .map(|identity| identity.engine)
        });
        self.engine = engine;
        let lines = self.run(&given)?;
        let answer = Answer::new(engine, lines);
        let transcript = answer.transcript();
        if let Some(cache) = &self.cache {
            cache.put(&key, &answer);
        }
        Ok(transcript)
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<String>, ExactError> {
        let folder = OwnedFolder::create(FOLDER).map_err(ExactError::Folder)?;
        let mut copies = Copies::new(folder.path());
        let socket = folder.path().join("s.sock");
        let arguments = given.arguments(&socket, |path| copies.copy(path))?;
        run::run(
            &self.program.path,
            &arguments,
            &self.environment(folder.path()),
            given.until(),
        )
    }

    /// What an answer depends on, as text.
    fn key(&self, given: &Given<'_>) -> Result<String, ExactError> {
        let arguments = given.arguments(Path::new("s.sock"), files::stamp)?;
        let mut key = format!("cards {}\nphantom ", self.card_specs());
        key.push_str(&stamp::of_file(&self.phantom));
        key.push_str("\nengine ");
        key.push_str(&stamp::of_engine(&self.program.path));
        for argument in arguments {
            key.push('\n');
            key.push_str(&argument);
        }
        Ok(key)
    }

    fn environment(&self, folder: &Path) -> Vec<(OsString, OsString)> {
        let foreign = |name: &OsString| {
            let name = name.to_string_lossy();
            ["LLAMA_", "PLIMSOLL_", "LD_PRELOAD"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let mut environment: Vec<(OsString, OsString)> =
            std::env::vars_os().filter(|(name, _)| !foreign(name)).collect();
        let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
        set(names::CUDA_VISIBLE_DEVICES, OsString::new());
        set(names::GGML_BACKEND_PATH, self.phantom.clone().into());
        set("LD_PRELOAD", self.phantom.clone().into());
        set(names::PHANTOM_CARDS, self.card_specs().into());
        // What an engine keeps for itself goes with the folder.
        set("LLAMA_CACHE", folder.into());
        if let Some(build) = self.engine.and_then(|engine| engine.build) {
            set(names::PHANTOM_BUILD, build.to_string().into());
        }
        environment
    }

    fn card_specs(&self) -> String {
        let spec = |card: &Card| {
            let (major, minor) = card.compute_capability.unwrap_or(USUAL);
            let (total, free) = (card.total.get(), card.free.get());
            format!("total={total},free={free},cc={major}.{minor}")
        };
        self.cards.iter().map(spec).collect::<Vec<_>>().join(";")
    }
}

/// Compute capability of a card that was described without one: every kernel from here on reserves the same.
const USUAL: (u32, u32) = (8, 9);

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
