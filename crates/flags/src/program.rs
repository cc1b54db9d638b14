//! Tells the programs of llama.cpp apart (such as llama-server and llama-cli), whose defaults and memory use
//! differ.

use std::str::FromStr;

/// Program of an engine, such as llama-server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProgramKind {
    #[default]
    LlamaServer,
    LlamaFitParams,
    LlamaCli,
    /// A program on the C API with its defaults, such as llama-cpp-python: full sliding-window caches.
    Library,
}

impl ProgramKind {
    /// Reads a program's name, with or without a path.
    pub fn from_name(name: &str) -> Option<Self> {
        // Command lines of Windows are pasted as well.
        let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
        match name.strip_suffix(".exe").unwrap_or(name) {
            "llama-server" => Some(Self::LlamaServer),
            "llama-fit-params" => Some(Self::LlamaFitParams),
            // All of them load a model with `common_params` and decode one sequence.
            "llama-cli" | "llama-completion" | "llama-perplexity" => Some(Self::LlamaCli),
            "library" => Some(Self::Library),
            _ => None,
        }
    }

    pub const NAMES: &'static str = "llama-server, llama-fit-params, llama-cli, library";
}

/// Error: a text names no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a program that plimsoll can plan for; the known programs are {names}",
    names = ProgramKind::NAMES
)]
pub struct ParseProgramError(String);

impl FromStr for ProgramKind {
    type Err = ParseProgramError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::from_name(name).ok_or_else(|| ParseProgramError(name.to_owned()))
    }
}
