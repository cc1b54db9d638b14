//! Input of a plan: model, flags, engine, program and cards.
//!
//! Programs of the same engine reserve different amounts of memory for the same flags, so the program is part
//! of the request.

use plimsoll_base::Card;
use plimsoll_flags::{ModelParams, ProgramKind};
use plimsoll_model::{Dialect, Model};
use serde::{Deserialize, Serialize};

use super::contexts::MeasuredContext;

/// Project that an engine was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EngineKind {
    // The names are those of the projects, which tables of contexts have in their files.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    #[serde(rename = "ik_llama.cpp")]
    IkLlamaCpp,
}

impl EngineKind {
    /// The tensor types of the engine's files: above BF16, the same numbers name different types.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::LlamaCpp => Dialect::Ggml,
            Self::IkLlamaCpp => Dialect::Ik,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::IkLlamaCpp => "ik_llama.cpp",
        }
    }
}

/// The engine to plan for. Without a build number, the newest that the formulas cover: b10605.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EngineBuild {
    pub kind: EngineKind,
    pub build: Option<u32>,
}

impl EngineBuild {
    pub const LLAMA_CPP: Self = Self { kind: EngineKind::LlamaCpp, build: None };
}

/// Everything that a plan depends on. `cards` are the cards visible to the engine's process, in its order.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    pub model: &'a Model,
    pub draft: Option<&'a Model>,
    pub projector: Option<&'a Model>,
    pub wish: &'a ModelParams,
    pub engine: EngineBuild,
    pub program: ProgramKind,
    pub cards: &'a [Card],
    /// Measured driver contexts, which are preferred to the published values.
    pub contexts: &'a [MeasuredContext],
}
