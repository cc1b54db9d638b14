//! Errors of the engine that `plimsoll plan --exact` runs.

use std::io;
use std::path::PathBuf;

use plimsoll_base::Bytes;
use plimsoll_engine::program::EngineError;
use plimsoll_flags::FlagError;
use plimsoll_planner::PlanError;
use plimsoll_planner::exact::{EngineRefusal, EngineRefusalKind};
use plimsoll_probe::headers::ReadModelError;
use plimsoll_probe::library::FindLibraryError;

use super::prompt::PromptError;
use super::system::Unreachable;

/// A failed question to an engine.
#[derive(Debug, thiserror::Error)]
pub enum ExactError {
    #[error(transparent)]
    Find(#[from] EngineError),
    #[error("the engine {} cannot be queried: {why}\nhint: name another engine with --exact=ENGINE", path.display())]
    Reach { path: PathBuf, why: Unreachable },
    #[error(
        "--exact asks llama-server, and no other program\nhint: omit --program, or write llama-server before the flags"
    )]
    Program,
    #[error(transparent)]
    Library(#[from] FindLibraryError),
    #[error(transparent)]
    Read(#[from] ReadModelError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error("cannot make a folder for copies of the model's header: {0}")]
    Folder(io::Error),
    #[error("cannot copy the header of the model {} to {}: {error}", from.display(), to.display())]
    Copy { from: PathBuf, to: PathBuf, error: io::Error },
    #[error("cannot start {}: {error}", path.display())]
    Start { path: PathBuf, error: io::Error },
    #[error(
        "the engine {} did not answer within {seconds} s; its last line was: {last}\nhint: --formulas asks no \
         engine",
        path.display()
    )]
    Wait { path: PathBuf, seconds: u64, last: String },
    #[error("the engine {} started, but its log does not state the sizes of its buffers", .0.display())]
    Sizes(PathBuf),
    #[error("the engine {}, started only to learn its sizes, took more than {limit} of memory and was stopped", path.display())]
    Memory { path: PathBuf, limit: Bytes },
    #[error("plimsoll was interrupted before the engine {} had answered, and ended it", .0.display())]
    Cancelled(PathBuf),
    #[error(
        "{program} was run {runs} times, which is the limit, and the answer is still unknown\nhint: name \
            fewer values in --fit, or omit --exact to use Plimsoll's formulas"
    )]
    Spent { program: String, runs: u32 },
    #[error(
        "{program} did not compute a prompt of {tokens} tokens: {why}\nhint: give --prompt fewer tokens, or omit it"
    )]
    Prompt { program: String, tokens: u32, why: PromptError },
    #[error(transparent)]
    Refused(#[from] EngineRefusal),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl ExactError {
    /// True where the engine cannot be asked at all, whatever the flags: the closed forms are left.
    pub fn is_unaskable(&self) -> bool {
        use EngineRefusalKind::{NoBackend, StaticRuntime};
        matches!(
            self,
            Self::Reach { .. } | Self::Refused(EngineRefusal { kind: NoBackend | StaticRuntime, .. })
        )
    }
}
