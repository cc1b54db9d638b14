//! Refusals by the engine, with its own error message.
//!
//! One cause leaves several error messages, each less specific than the one before. Specific messages are known by their
//! words; of the others the first counts.

use std::fmt;

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// `-sm row` where the backend splits no buffers.
    RowSplit,
    /// A quantised V cache without flash attention.
    CacheNeedsFlashAttention,
    /// The model is newer than the engine.
    Architecture,
    /// No CUDA backend was loaded, so its devices are not there.
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
pub struct Refusal {
    pub kind: RefusalKind,
    pub line: Option<String>,
}

impl Refusal {
    pub(super) fn from_complaints(complaints: &[String]) -> Self {
        // By the order of the table, not of the log: later messages repeat the first in general terms.
        for (kind, words) in TELLING {
            let telling = complaints.iter().find(|line| line.contains(words));
            if let Some(line) = telling {
                return Self {
                    kind: *kind,
                    line: Some(line.clone()),
                };
            }
        }
        Self {
            kind: RefusalKind::Other,
            line: complaints.first().cloned(),
        }
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self.kind {
            RefusalKind::RowSplit => "use -sm layer; CUDA has not split rows since about b9900",
            RefusalKind::CacheNeedsFlashAttention => "use -fa on, or -ctv f16",
            RefusalKind::Architecture => "use a newer engine",
            RefusalKind::NoBackend => {
                "the engine has no CUDA backend, or the loader lacks a library of it; name an engine that has with \
                 --exact=ENGINE"
            }
            RefusalKind::StaticRuntime => {
                "the engine's CUDA runtime is linked into it; take a build with the shared one (cmake \
                 -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared)"
            }
            RefusalKind::Flag => "leave the flag out, or name the engine that knows it with --exact=ENGINE",
            // The engine's own message is all that is known of these.
            RefusalKind::File | RefusalKind::Memory | RefusalKind::Other => return None,
        })
    }
}

/// Words of error messages, the most specific first.
const TELLING: &[(RefusalKind, &str)] = &[
    (RefusalKind::RowSplit, "does not support split buffers"),
    (
        RefusalKind::CacheNeedsFlashAttention,
        "V cache requires flash_attn",
    ),
    (
        RefusalKind::CacheNeedsFlashAttention,
        "V cache quantization requires flash_attn",
    ),
    (RefusalKind::CacheNeedsFlashAttention, "requires Flash Attention"),
    (RefusalKind::Architecture, "unknown model architecture"),
    (RefusalKind::Architecture, "unsupported model architecture"),
    (RefusalKind::NoBackend, "invalid device: CUDA"),
    (RefusalKind::NoBackend, "incompatible API version"),
    (RefusalKind::Flag, "invalid argument"),
    (RefusalKind::Flag, "error while handling argument"),
    (RefusalKind::Memory, "out of memory"),
    (RefusalKind::Memory, "unable to allocate"),
    (RefusalKind::Memory, "failed to allocate"),
    (RefusalKind::File, "error loading model"),
    (RefusalKind::Other, "failed to initialize the context"),
];

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) => write!(f, "the engine refuses: {line}")?,
            None => f.write_str("the engine ended without a message")?,
        }
        self.hint().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}
