//! Builds plans from the sizes that an engine reports instead of computed ones (`plan --exact`), and reads
//! the engine's refusals.
//!
//! The sizes come from the log of an engine that runs without a card. The run-time pool and the driver
//! context are not in the log, so they stay as computed. One cause of a refusal leads to several messages;
//! the most specific one is shown.

mod line;
mod merge;
mod transcript;

use std::fmt;

pub use merge::EngineSizes;
pub use transcript::{
    BufferKind, BufferPlace, CardInterface, CardMemory, EngineBuffer, GrownMemory, MARGIN, SeenMemory,
    Transcript,
};

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineRefusalKind {
    /// `-sm row` where the backend splits no buffers.
    RowSplit,
    /// A quantised V cache without flash attention.
    CacheNeedsFlashAttention,
    /// The model is newer than the engine.
    Architecture,
    /// No backend for cards was loaded, so its devices are not there.
    NoBackend,
    /// The CUDA runtime is linked into the engine, where nothing can stand in for it.
    StaticRuntime,
    /// A flag that this engine does not know or cannot read.
    Flag,
    /// The file cannot be read as this engine reads it.
    File,
    /// A buffer did not fit even into the memory described.
    Memory,
    Other,
}

/// A refusal: its cause, and the line of the log that names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct EngineRefusal {
    pub kind: EngineRefusalKind,
    pub line: Option<String>,
}

/// Causes, the most specific first, each with the words of its messages and a hint. Where the hint is empty,
/// the engine's own message is all that is known.
#[rustfmt::skip]
const CAUSES: &[(EngineRefusalKind, &[&str], &str)] = &[
    (EngineRefusalKind::RowSplit, &["does not support split buffers"],
     "use -sm layer; llama.cpp's CUDA backend has not split rows since about b9900"),
    (EngineRefusalKind::CacheNeedsFlashAttention,
     &["V cache requires flash_attn", "V cache quantization requires flash_attn", "requires Flash Attention"],
     "use -fa on, or -ctv f16"),
    (EngineRefusalKind::Architecture, &["unknown model architecture", "unsupported model architecture"],
     "use a newer engine"),
    (EngineRefusalKind::NoBackend, &["invalid device: ", "incompatible API version"],
     "the engine has no CUDA backend and none for ROCm or Vulkan, or the loader cannot find one of the backend's \
      libraries; name another engine with --exact=ENGINE"),
    (EngineRefusalKind::StaticRuntime, &[],
     "the engine links the CUDA runtime statically; use a build that links it dynamically (cmake \
      -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared)"),
    (EngineRefusalKind::Flag, &["invalid argument", "error while handling argument"],
     "remove the flag, or name an engine that supports it with --exact=ENGINE"),
    (EngineRefusalKind::Memory, &["out of memory", "unable to allocate", "failed to allocate"], ""),
    (EngineRefusalKind::File, &["error loading model"], ""),
    (EngineRefusalKind::Other, &["failed to initialize the context"], ""),
];

impl EngineRefusal {
    fn from_complaints(complaints: &[String]) -> Self {
        // By the order of the table, not of the log: later messages repeat the first in general terms.
        let reported = CAUSES.iter().flat_map(|(kind, words, _)| words.iter().map(move |word| (*kind, word)));
        let named =
            |(kind, word): (_, &&str)| Some((kind, complaints.iter().find(|line| line.contains(*word))?));
        let (kind, line) = reported.into_iter().find_map(named).unzip();
        Self { kind: kind.unwrap_or(EngineRefusalKind::Other), line: line.or(complaints.first()).cloned() }
    }
}

impl fmt::Display for EngineRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) => write!(f, "the engine refuses: {line}")?,
            None => f.write_str("the engine ended without a message")?,
        }
        match CAUSES.iter().find(|(kind, ..)| *kind == self.kind) {
            Some((.., hint)) if !hint.is_empty() => write!(f, "\nhint: {hint}"),
            _ => Ok(()),
        }
    }
}
