//! Refusals of a model or a flag by the engine, with the engine's own error message.
//!
//! One cause leads to several messages; the most specific one is shown.

use std::fmt;

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

impl EngineRefusal {
    pub(super) fn from_complaints(complaints: &[String]) -> Self {
        // By the order of the table, not of the log: later messages repeat the first in general terms.
        for (kind, words) in TELLING {
            let telling = complaints.iter().find(|line| line.contains(words));
            if let Some(line) = telling {
                return Self { kind: *kind, line: Some(line.clone()) };
            }
        }
        Self { kind: EngineRefusalKind::Other, line: complaints.first().cloned() }
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self.kind {
            EngineRefusalKind::RowSplit => {
                "use -sm layer; llama.cpp's CUDA backend has not split rows \
                since about b9900"
            }
            EngineRefusalKind::CacheNeedsFlashAttention => "use -fa on, or -ctv f16",
            EngineRefusalKind::Architecture => "use a newer engine",
            EngineRefusalKind::NoBackend => {
                "the engine has no CUDA backend and none for ROCm or Vulkan, or the loader cannot find one of the backend's \
                 libraries; name another engine with --exact=ENGINE"
            }
            EngineRefusalKind::StaticRuntime => {
                "the engine links the CUDA runtime statically; use a build that links it dynamically (cmake \
                 -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared)"
            }
            EngineRefusalKind::Flag => {
                "remove the flag, or name an engine that supports it with --exact=ENGINE"
            }
            // The engine's own message is all that is known of these.
            EngineRefusalKind::File | EngineRefusalKind::Memory | EngineRefusalKind::Other => return None,
        })
    }
}

/// Words of error messages, the most specific first.
const TELLING: &[(EngineRefusalKind, &str)] = &[
    (EngineRefusalKind::RowSplit, "does not support split buffers"),
    (EngineRefusalKind::CacheNeedsFlashAttention, "V cache requires flash_attn"),
    (EngineRefusalKind::CacheNeedsFlashAttention, "V cache quantization requires flash_attn"),
    (EngineRefusalKind::CacheNeedsFlashAttention, "requires Flash Attention"),
    (EngineRefusalKind::Architecture, "unknown model architecture"),
    (EngineRefusalKind::Architecture, "unsupported model architecture"),
    (EngineRefusalKind::NoBackend, "invalid device: "),
    (EngineRefusalKind::NoBackend, "incompatible API version"),
    (EngineRefusalKind::Flag, "invalid argument"),
    (EngineRefusalKind::Flag, "error while handling argument"),
    (EngineRefusalKind::Memory, "out of memory"),
    (EngineRefusalKind::Memory, "unable to allocate"),
    (EngineRefusalKind::Memory, "failed to allocate"),
    (EngineRefusalKind::File, "error loading model"),
    (EngineRefusalKind::Other, "failed to initialize the context"),
];

impl fmt::Display for EngineRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) => write!(f, "the engine refuses: {line}")?,
            None => f.write_str("the engine ended without a message")?,
        }
        self.hint().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}
