//! What was found: every fact with the line that proves it.
//!
//! DECISION: evidence is typed and bounded. Rules see numbers and what was said, never the raw log, so a log of a gigabyte leaves as much
//! behind as one of a kilobyte. A fact that is not there is `None`; nothing is assumed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::refused::Refused;
use super::saying::Saying;
use crate::bytes::Bytes;
use crate::machine::{BuddyInfo, Release};

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
    /// What other processes hold, where they are told.
    pub(super) others: Option<Bytes>,
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
}

/// A card as nvidia-smi's table shows it, beside its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) used: Bytes,
    pub(super) total: Bytes,
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
    pub(super) holders: Vec<Holder>,
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

impl Evidence {
    pub(super) fn says(&self, saying: Saying) -> bool {
        self.said.contains_key(&saying)
    }

    pub(super) fn says_any(&self, sayings: &[Saying]) -> bool {
        sayings.iter().any(|saying| self.says(*saying))
    }

    pub(super) fn quote(&self, saying: Saying) -> Option<Quote> {
        self.said.get(&saying).map(|seen| seen.first.clone())
    }

    /// The first line of each of `sayings` that was said.
    pub(super) fn quotes(&self, sayings: &[Saying]) -> Vec<Quote> {
        sayings.iter().filter_map(|saying| self.quote(*saying)).collect()
    }

    /// The refusals of the last load that had any.
    pub(super) fn last_refusals(&self) -> impl DoubleEndedIterator<Item = &Refusal> {
        let attempt = self.refusals.iter().map(|refusal| refusal.attempt).max();
        self.refusals
            .iter()
            .filter(move |refusal| Some(refusal.attempt) == attempt)
    }

    /// The refusal that ended it.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.last_refusals().next_back()
    }

    /// What the load that failed had put on the cards for `purpose`.
    pub(super) fn placed(&self, purpose: Purpose) -> Bytes {
        let attempt = self.refusal().map_or(self.attempt, |refusal| refusal.attempt);
        let buffers = self.buffers.iter().filter(|buffer| buffer.attempt == attempt);
        buffers
            .filter(|buffer| buffer.on_card && buffer.purpose == purpose)
            .map(|buffer| buffer.size)
            .sum()
    }

    /// The largest card that was named.
    pub(super) fn card(&self) -> Option<Bytes> {
        let torch = self.torch.as_ref().and_then(|torch| torch.total);
        let startup = self.startup.as_ref().map(|startup| startup.total);
        torch.or(startup).or_else(|| self.cards.iter().copied().max())
    }

    /// All weights of the model: by what an engine printed, or by names, of 16 bits where none is named.
    pub(super) fn weights(&self) -> Option<Bytes> {
        const MIB_OF_A_THOUSAND_MILLION_BITS: f64 = 1e9 / 8.0 / 1_048_576.0;
        let named = self.parameters.and_then(|parameters| {
            let mib = parameters * self.bits.unwrap_or(16.0) * MIB_OF_A_THOUSAND_MILLION_BITS;
            format!("{mib:.0}MiB").parse().ok()
        });
        self.model.or(self.told_model).or(named)
    }

    /// The weights and all cards, where the weights are more and none are meant to be elsewhere.
    pub(super) fn weights_beyond_cards(&self) -> Option<(Bytes, Bytes)> {
        let (weights, cards) = (self.weights()?, self.card().max(self.named_cards)?);
        (!self.on_host && weights > cards).then_some((weights, cards))
    }

    /// More than a quarter of a card that was gone before the engine took its first byte, and would have been enough.
    pub(super) fn taken_before(&self) -> Option<Bytes> {
        let (card, free) = (self.cards.iter().copied().max()?, self.card_free?);
        let taken = card.saturating_sub(free).saturating_sub(self.placed_earlier());
        let enough = self.refusal()?.asked.is_some_and(|asked| asked <= taken);
        (!self.is_unified() && self.guard.is_none() && taken.scaled(4, 1) >= card && enough).then_some(taken)
    }

    /// What loads before the one that failed have put on the cards; one that failed itself has given it back.
    fn placed_earlier(&self) -> Bytes {
        let failed = |attempt| self.refusals.iter().any(|refusal| refusal.attempt == attempt);
        let buffers = self.buffers.iter();
        buffers
            .filter(|buffer| buffer.on_card && !failed(buffer.attempt))
            .map(|buffer| buffer.size)
            .sum()
    }

    /// True where cards share the host's memory.
    pub(super) fn is_unified(&self) -> bool {
        self.release.is_some() || self.says_any(&[Saying::NvMap, Saying::UnifiedBoard, Saying::Tegrastats])
    }

    /// All memory of the machine: as the kernel tells it, else as people do.
    pub(super) fn machine(&self) -> Option<Bytes> {
        self.host.total.or(self.told_host)
    }

    /// Some allocation was refused, or is said to have been.
    pub(super) fn ran_out(&self) -> bool {
        self.was_refused() || self.says(Saying::OutOfMemory)
    }

    /// Some allocation was refused, in a form that only programs use; `out of memory` is what people say too.
    pub(super) fn was_refused(&self) -> bool {
        const WORDS: [Saying; 9] = [
            Saying::Unworded,
            Saying::TensorRefused,
            Saying::BudgetRefused,
            Saying::VllmNoBlocks,
            Saying::TorchWouldExceed,
            Saying::NvMap,
            Saying::NvmlQueryAssert,
            Saying::KernelMemory,
            Saying::VulkanRefused,
        ];
        !self.refusals.is_empty() || self.torch.is_some() || self.guard.is_some() || self.says_any(&WORDS)
    }
}
