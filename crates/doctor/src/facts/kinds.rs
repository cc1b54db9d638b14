//! Types of the facts that are read from a log, such as a failed allocation or a process on a card.

use plimsoll_base::Bytes;
use serde::Serialize;

use crate::line::shortened;

/// Origin of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineSource {
    /// The engine's or the kernel's log.
    #[default]
    Log,
    /// The description that came with the log: command line, card, memory.
    Context,
    /// The machine, live or as it was captured.
    Machine,
    /// Guard's page or trace.
    Guard,
}

/// Origin of a text: its kind and, where several files are read, the file's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineOrigin {
    pub source: LineSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A log line that is used as evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quote {
    #[serde(flatten)]
    pub origin: LineOrigin,
    /// Counted from 1.
    pub line: u64,
    pub text: String,
}

impl Quote {
    pub(crate) fn new(origin: &LineOrigin, line: u64, text: &str) -> Self {
        Self { origin: origin.clone(), line, text: shortened(text).trim_start().to_owned() }
    }

    /// The line with its place: `line 7: …`, or `server.log:7: …` among several files.
    pub(crate) fn placed(&self) -> String {
        let (line, text) = (self.line, &self.text);
        match (&self.origin.file, self.origin.source) {
            (Some(file), _) => format!("{file}:{line}: {text}"),
            (None, LineSource::Log) => format!("line {line}: {text}"),
            // Guard, the machine and what the user tells have no lines that one could look up.
            (None, _) => text.clone(),
        }
    }
}

/// A document or a source file among the texts, with the lines of it that are evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherDocument {
    pub(crate) origin: LineOrigin,
    /// First and last number of each block.
    pub(crate) lines: Vec<(u64, u64)>,
    /// The last line that was kept of a long text.
    pub(crate) read_to: u64,
}

/// First and last line of one pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) first: Quote,
    pub(crate) last: Quote,
}

/// Progress of an engine, in the order of llama.cpp's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoadStage {
    #[default]
    Unknown,
    // The stages are compared: a later line never moves the progress back.
    Weights,
    /// The context is being made; its cache comes first.
    Context,
    Cache,
    Graph,
    Serving,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadProgress {
    pub(crate) stage: LoadStage,
    /// Number of the load within the log.
    pub(crate) attempt: u32,
}

/// Purpose of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
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
pub(crate) enum MemoryPlace {
    Card,
    Host,
}

/// A request above this is an address or an overflow: no card has 16 TiB.
pub(crate) const NO_SIZE: Bytes = Bytes::gib(16 << 10);

/// An allocation that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedAllocation {
    pub(crate) purpose: Purpose,
    pub(crate) place: MemoryPlace,
    pub(crate) device: Option<u64>,
    pub(crate) requested: Option<Bytes>,
    pub(crate) stage: LoadStage,
    pub(crate) attempt: u32,
    /// A call of the GPU run time failed, not the allocation of a named buffer.
    pub(crate) at_run_time: bool,
    /// The line of the call that failed, which follows the error's own line.
    pub(crate) statement: Option<Quote>,
    pub(crate) quote: Quote,
}

impl FailedAllocation {
    /// Its lines, the most telling one first.
    pub(crate) fn quotes(&self) -> impl Iterator<Item = Quote> {
        self.statement.iter().chain([&self.quote]).cloned()
    }
}

/// A buffer that was allocated, or planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedBuffer {
    pub(crate) purpose: Purpose,
    pub(crate) on_card: bool,
    pub(crate) size: Bytes,
    /// Number of the card.
    pub(crate) device: u64,
    pub(crate) attempt: u32,
}

/// Frame of a traceback that shows the framework's activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TracebackFrame {
    pub(crate) purpose: Purpose,
    pub(crate) quote: Quote,
}

/// Figures of PyTorch's out-of-memory error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TorchRefusal {
    pub(crate) requested: Bytes,
    /// The card that refused, numbered among the visible ones.
    pub(crate) device: Option<u64>,
    /// The last frame before the error, or the first one after it.
    pub(crate) frame: Option<TracebackFrame>,
    pub(crate) total: Option<Bytes>,
    pub(crate) free: Option<Bytes>,
    /// Held by live tensors.
    pub(crate) allocated: Option<Bytes>,
    /// Held by the caching allocator and used by no tensor.
    pub(crate) idle: Option<Bytes>,
    /// Held by this process in all.
    pub(crate) ours: Option<Bytes>,
    /// Held by the other processes that the error names.
    pub(crate) others: Option<Bytes>,
    /// Number of processes that the error names.
    pub(crate) named: u32,
    pub(crate) quote: Quote,
}

impl TorchRefusal {
    /// A refusal with only the requested size.
    pub(crate) fn of(requested: Bytes, quote: &Quote) -> Self {
        Self { requested, quote: quote.clone(), ..Self::default() }
    }
}

/// Memory figures that vLLM prints before it loads a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartupCheck {
    pub(crate) free: Bytes,
    pub(crate) total: Bytes,
    pub(crate) wanted: Bytes,
    pub(crate) quote: Quote,
}

/// Memory figures that ollama and llama.cpp print before they load a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadEstimate {
    /// For every layer of the model.
    pub(crate) full: Bytes,
    /// On all cards, and on the fullest of them.
    pub(crate) available: Bytes,
    pub(crate) least: Bytes,
    pub(crate) weights: Option<Bytes>,
    pub(crate) cache: Option<Bytes>,
    pub(crate) quote: Quote,
}

/// Host memory, from `/proc/meminfo`, `free` or tegrastats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostFacts {
    pub(crate) total: Option<Bytes>,
    pub(crate) free: Option<Bytes>,
    pub(crate) available: Option<Bytes>,
    pub(crate) cached: Option<Bytes>,
    pub(crate) cma_free: Option<Bytes>,
    pub(crate) slab_unreclaimable: Option<Bytes>,
    /// Free main memory and swap: what Windows may commit.
    pub(crate) commit: Option<Bytes>,
    /// The lowest MemFree of all readings, with MemAvailable of the same line.
    pub(crate) lowest: Option<(Bytes, Bytes)>,
    pub(crate) highest_free: Option<Bytes>,
    /// Memory of a board that is sold with one size, by the board's name.
    pub(crate) of_board: Option<Bytes>,
}

/// Memory of a card in nvidia-smi's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardUsage {
    pub(crate) used: Bytes,
    pub(crate) total: Bytes,
    pub(crate) quote: Quote,
}

/// Cards that a command line, a variable or a call selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardChoice {
    pub(crate) cards: Vec<u64>,
    /// The choice hides the other cards and renumbers the rest, as `CUDA_VISIBLE_DEVICES` does.
    pub(crate) hides: bool,
    pub(crate) quote: Quote,
}

/// A process that holds memory of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardHolder {
    pub(crate) card: Option<u64>,
    pub(crate) pid: Option<u64>,
    pub(crate) name: String,
    pub(crate) used: Bytes,
    pub(crate) quote: Quote,
}

/// Size of the model, from printed sizes and from its name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ModelFacts {
    /// Parameters in thousand millions, by the name.
    pub(crate) parameters: Option<f64>,
    /// Bits of a parameter, by the name of the quantisation.
    pub(crate) bits: Option<f64>,
    /// Size of the file, as an engine printed it.
    pub(crate) file: Option<Bytes>,
    /// Memory of the weights, as vLLM printed it.
    pub(crate) weights: Option<Bytes>,
    /// Memory that vLLM's share of the card lacks before the first block of the KV cache.
    pub(crate) lacking: Option<Bytes>,
    /// Words of the vocabulary, and the width of the embedding.
    pub(crate) vocabulary: Option<u64>,
    pub(crate) embedding: Option<u64>,
    /// The model has no experts (`n_expert = 0`).
    pub(crate) is_dense: bool,
    /// The report names a training run or its parts.
    pub(crate) trains: bool,
    /// Memory of all cards, by their names.
    pub(crate) named_cards: Option<Bytes>,
}

/// Options of an engine's command line, each with its largest value in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EngineOptions {
    pub(crate) context_tokens: Option<u64>,
    /// The longest context that fits, as vLLM computes it.
    pub(crate) longest_context: Option<u64>,
    pub(crate) layers: Option<u64>,
    /// Sequences at once (`-np`).
    pub(crate) slots: Option<u64>,
    /// Tokens of a micro-batch (`-ub`).
    pub(crate) micro_batch: Option<u64>,
    /// vLLM's share of the card.
    pub(crate) utilization: Option<f64>,
    /// Cards of a tensor-parallel group.
    pub(crate) parallel: Option<u64>,
}
