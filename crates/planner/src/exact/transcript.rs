//! Buffers and events of an engine's log, read line by line.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::Bytes;

use super::line::{self, BufferKind, BufferPlace, CardInterface, EngineLogLine};
use super::refusal::{EngineRefusal, EngineRefusalKind};
use super::stand_in::GrownMemory;

/// More buffers than any engine has: one for each device, cache and context.
const MOST_BUFFERS: usize = 4096;
/// Error messages beyond these repeat the first.
const MOST_COMPLAINTS: usize = 32;

/// One buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineBuffer {
    pub place: BufferPlace,
    pub kind: BufferKind,
    pub bytes: Bytes,
    /// The context or projector that it belongs to, counted from 1; 0 is before any.
    part: u32,
}

/// The memory in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    buffers: Vec<EngineBuffer>,
    complaints: Vec<String>,
    parts: u32,
    context: Option<u64>,
    build: Option<u32>,
    reserved: bool,
    ready: bool,
    flash_attention_off: bool,
    copies_dropped: bool,
    runtime: Option<CardInterface>,
    static_runtime: bool,
    asked: BTreeMap<usize, Bytes>,
    grown: BTreeMap<usize, GrownMemory>,
    cublas: BTreeSet<usize>,
    without_code: u32,
    /// The numbers are whole mebibytes, rounded down.
    coarse: bool,
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

    /// Adds the next line; true if it matters.
    pub fn hear(&mut self, text: &str) -> bool {
        let line = line::read(text);
        let matters = line != EngineLogLine::Nothing;
        self.take(line);
        matters
    }

    fn take(&mut self, line: EngineLogLine<'_>) {
        match line {
            EngineLogLine::Buffer { place, kind, bytes } => self.add(place, kind, bytes),
            EngineLogLine::Row { place, weights, cache, compute } => {
                self.add(place, BufferKind::Weights, weights);
                self.add(place, BufferKind::Cache, cache);
                self.add(place, BufferKind::Compute, compute);
                self.coarse = true;
                // The host's row comes last.
                self.ready |= place == BufferPlace::Host;
            }
            EngineLogLine::Reserved => self.reserved = true,
            EngineLogLine::Begins => self.parts = self.parts.saturating_add(1),
            // The first context is the model's; those of drafts follow.
            EngineLogLine::Context(tokens) => self.context = self.context.or(Some(tokens)),
            EngineLogLine::Build(build) => self.build = self.build.or(Some(build)),
            // A draft model's context may switch it off without the model's doing so.
            EngineLogLine::FlashAttentionOff => self.flash_attention_off |= self.parts == 1,
            EngineLogLine::CopiesDropped => self.copies_dropped = true,
            EngineLogLine::Ready => self.ready = true,
            EngineLogLine::Complaint(words) => {
                if self.complaints.len() < MOST_COMPLAINTS {
                    self.complaints.push(words.to_owned());
                }
            }
            // A device that is opened says more than a library that is loaded, and comes later.
            EngineLogLine::Runtime(interface) => self.runtime = Some(interface),
            EngineLogLine::StaticRuntime => self.static_runtime = true,
            EngineLogLine::Asked { card, bytes } if self.asked.len() < MOST_BUFFERS => {
                self.asked.insert(card, bytes);
            }
            EngineLogLine::Grown { card, memory } if self.grown.len() < MOST_BUFFERS => {
                self.grown.insert(card, memory);
            }
            EngineLogLine::Cublas(card) if self.cublas.len() < MOST_BUFFERS => {
                self.cublas.insert(card);
            }
            EngineLogLine::WithoutCode(kernels) => self.without_code = kernels,
            EngineLogLine::Asked { .. }
            | EngineLogLine::Grown { .. }
            | EngineLogLine::Cublas(_)
            | EngineLogLine::Nothing => {}
        }
    }

    fn add(&mut self, place: BufferPlace, kind: BufferKind, bytes: Bytes) {
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

    /// True once every buffer is known, whatever the engine loads.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// True once the first context is complete, which is all there is without draft model, projector and adapters.
    pub fn has_context(&self) -> bool {
        self.reserved || self.ready
    }

    /// True where the weights are somewhere; without them the log is no answer.
    pub fn has_weights(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.kind == BufferKind::Weights)
    }

    pub fn buffers(&self) -> &[EngineBuffer] {
        &self.buffers
    }

    /// The sum of the buffers of one purpose in one place.
    pub fn sum(&self, place: BufferPlace, kind: BufferKind) -> Bytes {
        let of = |buffer: &&EngineBuffer| (buffer.place, buffer.kind) == (place, kind);
        self.buffers.iter().filter(of).map(|buffer| buffer.bytes).sum()
    }

    /// The context that the engine settled on, in tokens.
    pub fn context(&self) -> Option<u64> {
        self.context
    }

    pub fn build(&self) -> Option<u32> {
        self.build
    }

    /// The interface that the engine uses cards by, where the stand-in for it was asked.
    pub fn runtime(&self) -> Option<CardInterface> {
        self.runtime
    }

    /// Bytes that the engine's backend asked of a card in all, which its log may not name.
    pub fn asked(&self, card: usize) -> Option<Bytes> {
        self.asked.get(&card).copied()
    }

    /// Memory of a card after a prompt, where the engine computed one.
    pub fn grown(&self, card: usize) -> Option<GrownMemory> {
        self.grown.get(&card).copied()
    }

    /// Length of the prompt that the engine computed.
    pub fn prompt(&self) -> Option<u64> {
        self.grown.values().map(|memory| memory.tokens).next()
    }

    /// True where the engine used cuBLAS on a card.
    pub fn uses_cublas(&self, card: usize) -> bool {
        self.cublas.contains(&card)
    }

    /// Number of kernels whose occupancy was estimated.
    pub fn without_code(&self) -> u32 {
        self.without_code
    }

    /// True where flash attention was left to the engine, and the engine switched it off.
    pub fn flash_attention_off(&self) -> bool {
        self.flash_attention_off
    }

    pub fn copies_dropped(&self) -> bool {
        self.copies_dropped
    }

    /// Rounding error of each number.
    pub fn margin(&self) -> Bytes {
        // The log has two decimals: half of the last is 5242.88 bytes.
        const HALF_A_PLACE: Bytes = Bytes::new(5243);
        if self.coarse { Bytes::mib(1) } else { HALF_A_PLACE }
    }

    /// True if another log reports the same memory.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let said = |log: &Self| (log.context, log.flash_attention_off, log.copies_dropped, log.coarse);
        self.buffers == other.buffers && said(self) == said(other)
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
