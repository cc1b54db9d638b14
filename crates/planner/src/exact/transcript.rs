//! Finds buffers and events in an engine's log, line by line.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_base::Bytes;
use serde::{Deserialize, Serialize};

use super::{EngineRefusal, EngineRefusalKind};

/// More buffers than any engine has: one for each device, cache and context.
const MOST_BUFFERS: usize = 4096;
/// Rounding error of each number: the log has two decimals of a mebibyte, and half of the last is 5242.88
/// bytes.
pub const MARGIN: Bytes = Bytes::new(5243);
/// Error messages beyond these repeat the first.
const MOST_COMPLAINTS: usize = 32;

/// The purpose of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    Weights,
    Adapter,
    /// Keys and values, recurrent state or compressed state.
    Cache,
    Compute,
    Output,
    /// A buffer of unknown purpose.
    Other,
}

/// The place of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferPlace {
    /// `CUDA0` is 0.
    Card(usize),
    Host,
}

/// The interface by which an engine uses cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardInterface {
    /// The CUDA runtime, by its major version.
    Cuda(u32),
    Rocm,
    Vulkan,
}

impl fmt::Display for CardInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(version) => write!(f, "CUDA {version}"),
            Self::Rocm => f.write_str("ROCm"),
            Self::Vulkan => f.write_str("Vulkan"),
        }
    }
}

/// One buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineBuffer {
    pub place: BufferPlace,
    pub kind: BufferKind,
    pub bytes: Bytes,
    /// The context or projector that it belongs to, counted from 1; 0 is before any.
    part: u32,
}

/// Memory of a card after a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrownMemory {
    /// Bytes that the engine's backend holds.
    #[serde(rename = "held")]
    pub occupied: Bytes,
    /// Bytes that a driver takes of the card for them.
    pub taken: Bytes,
    /// Length of the prompt.
    pub tokens: u64,
}

/// Memory of a card as the stand-in saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardMemory {
    /// Bytes that the engine's backend asked for in all, which its log may not name.
    #[serde(rename = "asked")]
    pub requested: Option<Bytes>,
    /// Where the engine computed a prompt.
    pub grown: Option<GrownMemory>,
    /// True where the engine used cuBLAS.
    pub cublas: bool,
}

/// Memory of the cards as the stand-in saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenMemory {
    pub cards: BTreeMap<usize, CardMemory>,
    /// Number of kernels whose occupancy is an estimate, because the engine has no machine code of them for
    /// the card.
    pub without_code: u32,
}

/// The memory in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    pub buffers: Vec<EngineBuffer>,
    /// The context that the engine settled on, in tokens.
    pub context: Option<u64>,
    pub build: Option<u32>,
    /// True once every buffer is known, whatever the engine loads: the server makes its slots.
    pub ready: bool,
    /// True where flash attention was left to the engine, and the engine switched it off.
    pub flash_attention_off: bool,
    /// The compute buffers of several cards did not fit with four copies of everything, so there is one.
    pub copies_dropped: bool,
    /// The interface that the engine uses cards by, where the stand-in for it was asked.
    pub runtime: Option<CardInterface>,
    /// Requests that the stand-in saw, which are in no line of the log.
    pub seen: SeenMemory,
    /// A CUDA runtime inside of the engine, for which nothing can stand in.
    pub(super) static_runtime: bool,
    /// The first context has its compute buffers; its caches came before.
    pub(super) reserved: bool,
    /// Contexts and projectors that have begun: the buffers that follow are those of the last.
    pub(super) parts: u32,
    complaints: Vec<String>,
}

impl Transcript {
    /// Reads a whole log.
    pub fn read(log: &str) -> Self {
        let mut transcript = Self::default();
        for line in log.lines() {
            transcript.hear(line);
        }
        transcript
    }

    pub(super) fn complain(&mut self, words: &str) {
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push(words.to_owned());
        }
    }

    pub(super) fn add(&mut self, place: BufferPlace, kind: BufferKind, bytes: Bytes) {
        // Buffers add up, with one exception: a context may reserve its compute buffers again, after a retry
        // or because an adapter changed the graph. In that case only the later sizes count.
        let buffer = EngineBuffer { place, kind, bytes, part: self.parts };
        let same = |old: &&mut EngineBuffer| (old.place, old.kind, old.part) == (place, kind, buffer.part);
        let again = self.buffers.iter_mut().find(same);
        // Only compute buffers are reserved again; other buffers of one kind are several.
        if let Some(old) = again.filter(|_| kind == BufferKind::Compute) {
            *old = buffer;
        } else if self.buffers.len() < MOST_BUFFERS {
            self.buffers.push(buffer);
        }
    }

    pub fn card(&self, card: usize) -> CardMemory {
        self.seen.cards.get(&card).copied().unwrap_or_default()
    }

    /// True once the first context is complete, which is all there is without draft model, projector and
    /// adapters.
    pub fn has_context(&self) -> bool {
        self.reserved || self.ready
    }

    /// True where the weights are somewhere; without them the log is no answer.
    pub fn has_weights(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.kind == BufferKind::Weights)
    }

    /// The sum of the buffers of one purpose in one place.
    pub fn sum(&self, place: BufferPlace, kind: BufferKind) -> Bytes {
        let of = |buffer: &&EngineBuffer| (buffer.place, buffer.kind) == (place, kind);
        self.buffers.iter().filter(of).map(|buffer| buffer.bytes).sum()
    }

    /// Length of the prompt that the engine computed.
    pub fn prompt(&self) -> Option<u64> {
        self.seen.cards.values().find_map(|memory| Some(memory.grown?.tokens))
    }

    /// True if another log reports the same memory.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let stated = |log: &Self| (log.context, log.flash_attention_off, log.copies_dropped);
        self.buffers == other.buffers && stated(self) == stated(other)
    }

    /// The cause, for an engine that ended before it was ready.
    pub fn refusal(&self) -> EngineRefusal {
        let refusal = EngineRefusal::from_complaints(&self.complaints);
        match refusal.kind {
            EngineRefusalKind::NoBackend if self.static_runtime => {
                EngineRefusal { kind: EngineRefusalKind::StaticRuntime, ..refusal }
            }
            _ => refusal,
        }
    }
}
