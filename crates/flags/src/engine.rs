//! Names the projects of engines (llama.cpp, ik_llama.cpp), and compares their build numbers.

use std::str::FromStr;

use plimsoll_model::Dialect;
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EngineBuild {
    pub kind: EngineKind,
    pub build: Option<u32>,
}

impl EngineBuild {
    pub const LLAMA_CPP: Self = Self { kind: EngineKind::LlamaCpp, build: None };

    /// The build number in a version as engines print and users write it: `10605 (c1d0e7a)`, `b10605`,
    /// `llama-b9000`, and since 0.2 `0.5.0-dev (build 11063, commit c1d0e7a)`. `None` for any other text;
    /// `Some(None)` for a version without a number, as `0.7.0`, or with that of an unstamped build.
    pub fn number_in(version: &str) -> Option<Option<u32>> {
        /// Stamps of builds outside a checkout are 0 and 1.
        const UNSTAMPED: u32 = 1;
        let text = version.trim();
        let text = text.strip_prefix("llama-").unwrap_or(text);
        let text = text.strip_prefix('b').unwrap_or(text);
        let (first, rest) = text.split_once([' ', '-']).unwrap_or((text, ""));
        let parts = || first.split('.').map(|part| part.parse::<u32>().ok());
        let number = match (rest.split_once("(build "), parts().count()) {
            // Bindings put a version of their own in front, as `xllamacpp-2026.10.11549 (build 11549, …)`.
            (Some((_, named)), _) => named.split([',', ')']).next()?.trim().parse().ok()?,
            (None, 1) => first.parse().ok()?,
            (None, 3) if parts().all(|part| part.is_some()) => return Some(None),
            _ => return None,
        };
        Some((number > UNSTAMPED).then_some(number))
    }
}

/// Why a text names no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseEngineError {
    #[error("`{0}` is not a known engine; the known engines are llama.cpp and ik_llama.cpp")]
    FindEngine(String),
    #[error("`{0}` is not a build; write for example llama.cpp@10605")]
    ReadBuild(String),
}

/// Reads `llama.cpp` or, with its build, `llama.cpp@10605`.
impl FromStr for EngineBuild {
    type Err = ParseEngineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, build) = text.split_once('@').map_or((text, None), |(name, build)| (name, Some(build)));
        let kind =
            [EngineKind::LlamaCpp, EngineKind::IkLlamaCpp].into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| ParseEngineError::FindEngine(name.to_owned()))?;
        let number =
            |build: &str| Self::number_in(build).ok_or_else(|| ParseEngineError::ReadBuild(build.to_owned()));
        Ok(Self { kind, build: build.map(number).transpose()?.flatten() })
    }
}
