//! What was found: every fact with the line that proves it.
//!
//! DECISION: evidence is typed and bounded. Rules see numbers and what was said, never the raw log, so a log of a gigabyte leaves as much
//! behind as one of a kilobyte. A fact that is not there is `None`; nothing is assumed.

mod sums;

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_host::{BuddyInfo, Release};
use serde::Serialize;

use super::refused::Refused;
use super::saying::Saying;

pub(super) use self::sums::is_arena;

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The engine's or the kernel's log.
    Log,
    /// What was told of the circumstances: command line, card, memory.
    Context,
    /// The machine, as it is now or as it was captured.
    Machine,
    /// Guard's page or trace.
    Guard,
}

/// A line that stands as evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quote {
    pub source: Source,
    /// Counted from 1.
    pub line: u64,
    pub text: String,
}

/// How often something was said, and where first and last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) count: u64,
    pub(super) first: Quote,
    pub(super) last: Quote,
}

/// How far a program had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    #[default]
    Unknown,
    Weights,
    /// The context is being made; its cache comes first.
    Context,
    Cache,
    Graph,
    Serving,
}

/// What a refused allocation was for, where the program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Unknown,
    Weights,
    Cache,
    Compute,
    Output,
    Pool,
    /// Addresses, not memory.
    Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Card,
    Host,
}

/// Nobody asks a card for so much at once: what reads like it is an address or an overflow.
pub(super) const NO_SIZE: Bytes = Bytes::gib(16 << 10);

/// An allocation that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) purpose: Purpose,
    pub(super) place: Place,
    pub(super) device: Option<u64>,
    pub(super) asked: Option<Bytes>,
    pub(super) stage: Stage,
    /// Which load of the log it belongs to.
    pub(super) attempt: u32,
    /// The run time's own call failed, not the allocation of a named buffer.
    pub(super) at_run_time: bool,
    pub(super) quote: Quote,
}

/// A buffer that was allocated, or planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) purpose: Purpose,
    pub(super) on_card: bool,
    pub(super) size: Bytes,
    pub(super) attempt: u32,
}

/// The frame of a traceback that says what a framework was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) purpose: Purpose,
    pub(super) quote: Quote,
}

/// What PyTorch tells with its refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Torch {
    pub(super) asked: Bytes,
    /// The card that refused, among those that were visible.
    pub(super) device: Option<u64>,
    /// The last frame before it, or the first behind it.
    pub(super) frame: Option<Frame>,
    pub(super) total: Option<Bytes>,
    pub(super) free: Option<Bytes>,
    /// By tensors that live.
    pub(super) allocated: Option<Bytes>,
    /// Held by the caching allocator, used by no tensor.
    pub(super) idle: Option<Bytes>,
    /// What this process holds in all, where it is told.
    pub(super) ours: Option<Bytes>,
    /// What other processes hold, where they are told, and how many they are.
    pub(super) others: Option<Bytes>,
    pub(super) named: u32,
    pub(super) quote: Quote,
}

/// vLLM's look at the card before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Startup {
    pub(super) free: Bytes,
    pub(super) total: Bytes,
    pub(super) wanted: Bytes,
    pub(super) quote: Quote,
}

/// What ollama counted before it loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Required {
    /// For every layer of the model.
    pub(super) full: Bytes,
    pub(super) available: Bytes,
    pub(super) weights: Option<Bytes>,
    pub(super) cache: Option<Bytes>,
    pub(super) quote: Quote,
}

/// The host's memory as `/proc/meminfo`, `free` or tegrastats tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) total: Option<Bytes>,
    pub(super) free: Option<Bytes>,
    pub(super) available: Option<Bytes>,
    pub(super) cached: Option<Bytes>,
    pub(super) cma_free: Option<Bytes>,
    pub(super) slab_unreclaimable: Option<Bytes>,
    /// The lowest that was free in any reading, with what was available then.
    pub(super) lowest: Option<(Bytes, Bytes)>,
    /// The most that was free in any reading.
    pub(super) highest_free: Option<Bytes>,
}

/// A card as nvidia-smi's table shows it, beside its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) used: Bytes,
    pub(super) total: Bytes,
    pub(super) quote: Quote,
}

/// What a sentence may be about, next to what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Idea {
    Others,
    Holds,
    Grows,
    Rounds,
    Pieces,
    Reserved,
    Breaks,
    Machine,
    Slows,
    Spills,
    Builds,
    Fails,
    Asks,
    Uses,
    Weights,
    Tokens,
    Computes,
}

/// A card, or several, that somebody chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) cards: Vec<u64>,
    /// The others are hidden, and those that are left are numbered anew.
    pub(super) hides: bool,
    pub(super) quote: Quote,
}

/// A process on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) card: Option<u64>,
    pub(super) pid: Option<u64>,
    pub(super) name: String,
    pub(super) used: Bytes,
    pub(super) quote: Quote,
}

/// All that is known. Made by a [`Reader`](super::Reader).
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub(super) said: BTreeMap<Saying, Seen>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) torch: Option<Torch>,
    pub(super) startup: Option<Startup>,
    pub(super) required: Option<Required>,
    pub(super) cards: Vec<Bytes>,
    /// What a program saw free on the card before it took anything.
    pub(super) card_free: Option<Bytes>,
    /// The fullest card of nvidia-smi's table.
    pub(super) usage: Option<Usage>,
    /// Short reports as they were read, and what was told of them.
    pub(super) report: Vec<(Source, String)>,
    pub(super) holders: Vec<Holder>,
    pub(super) choices: Vec<Choice>,
    /// What a short report is about, by the first sentence of each idea.
    pub(super) ideas: BTreeMap<Idea, Quote>,
    pub(super) release: Option<Release>,
    pub(super) host: Host,
    pub(super) blocks: BuddyInfo,
    pub(super) xids: Vec<(u64, Quote)>,
    /// Readings of one quantity, one after the other.
    pub(super) series: Vec<Bytes>,
    /// Model parameters in thousand millions, where a name tells.
    pub(super) parameters: Option<f64>,
    /// Bits of one, where a name tells.
    pub(super) bits: Option<f64>,
    /// The size of the model's file, as an engine printed it.
    pub(super) model: Option<Bytes>,
    /// The size of the model and the host's memory, as people tell them.
    pub(super) told_model: Option<Bytes>,
    pub(super) told_host: Option<Bytes>,
    /// A part of the model is on the host by choice.
    pub(super) on_host: bool,
    /// All cards, by their names.
    pub(super) named_cards: Option<Bytes>,
    /// Tokens of the context, the largest that is named.
    pub(super) context_tokens: Option<u64>,
    pub(super) utilization: Option<f64>,
    /// What vLLM says its weights took.
    pub(super) weights: Option<Bytes>,
    /// Tokens of a micro-batch (`-ub`), the largest that is named.
    pub(super) micro_batch: Option<u64>,
    pub(super) frame: Option<Frame>,
    pub(super) parallel: Option<u64>,
    pub(super) attempt: u32,
    pub(super) stage: Stage,
    /// The last that guard refused, or saw refused.
    pub(super) guard: Option<Refused>,
}
