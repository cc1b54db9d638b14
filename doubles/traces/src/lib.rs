//! Generates, reads and replays allocation traces (a program's requests to its allocator), without a card.
//!
//! The generator gives the requests of an engine to its run-time pool for a prompt.
//! Two generated traces equal those recorded on an H200 (`tests/created.rs`).
#![forbid(unsafe_code)]

use plimsoll_pool::Stream;
pub use plimsoll_pool::demand::DemandRules;
use plimsoll_pool::demand::{Rules, product};

mod attention;
mod card;
mod latent;
pub mod pool_replay;
pub mod replay;
mod shape;
pub mod trace;

pub use card::GeneratorCard;
pub use shape::{ExpertShape, Latent, ModelShape, WindowShape};
use trace::{Fault, Trace, TraceBuilder};

/// Cells in use are rounded up to this: `llama-kv-cache.cpp:get_n_kv @ b10605`.
const CELLS: u64 = 256;
/// Bound on the steps of a trace: a few hundred megabytes.
const MOST_STEPS: usize = 1 << 24;
/// Bound on the context, beyond any engine's; with it the formulas stay far from the end of `u64`.
const LONGEST: u64 = 1 << 26;

/// Type of the KV cache. All quantised types are copied to f16 in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheShape {
    F16,
    Quantised,
}

/// Tokens of a prompt for which the engine computes an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// The last one, as in a server: after its attention the last layer computes one token only.
    Last,
    /// The layers only, each for every token; no output matrix.
    Layers,
}

// DECISION: a trace has one device and one stream, and each operation allocates a group of blocks (`demand`).
/// An engine run for which a trace is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedRun {
    pub engine: DemandRules,
    pub cache: CacheShape,
    /// Tokens of the prompt.
    pub context: u64,
    /// Tokens that are computed at once: `-ub`.
    pub micro_batch: u64,
    /// The prompt comes in parts of this many tokens, each with an answer; 0 for all of it at once.
    pub part: u64,
    /// Tokens that are decoded after each part.
    pub answer: u64,
    /// The server runs two tokens first, to warm up.
    pub warm_up: bool,
    pub outputs: Outputs,
    /// `-fa`.
    pub flash_attention: bool,
    /// `-amb` of ik_llama.cpp, in MiB.
    pub attention_pass: Option<u64>,
}

impl GeneratedRun {
    /// A prompt of `context` tokens at once, in micro-batches of 512, on `engine`.
    pub const fn prompt(engine: DemandRules, cache: CacheShape, context: u64) -> Self {
        Self {
            engine,
            cache,
            context,
            micro_batch: 512,
            part: 0,
            answer: 0,
            warm_up: false,
            outputs: Outputs::Last,
            flash_attention: true,
            attention_pass: None,
        }
    }
}

/// Reason why no trace can be generated for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    #[error("a context of {tokens} tokens is not possible; give 1 to {LONGEST}")]
    Context { tokens: u64 },
    #[error("a micro-batch of {tokens} tokens is not possible; give 1 to 65536")]
    MicroBatch { tokens: u64 },
    #[error(
        "the trace has more than {MOST_STEPS} steps; shorten the context or the answers, or enlarge the micro-batch"
    )]
    TooLong,
    /// llama.cpp has no kernel for this combination (llama-context.cpp refuses it at start).
    #[error("a quantised V cache needs flash attention; enable it, or use an f16 cache")]
    QuantisedWithoutFlashAttention,
    #[error("{0}")]
    Step(Fault),
}

/// The requests of a run to the pool of one device.
pub fn generate(
    shape: &ModelShape,
    run: &GeneratedRun,
    card: &GeneratorCard,
) -> Result<Trace, GenerateError> {
    if run.context == 0 || run.context > LONGEST {
        return Err(GenerateError::Context { tokens: run.context });
    }
    if run.micro_batch == 0 || run.micro_batch > 1 << 16 {
        return Err(GenerateError::MicroBatch { tokens: run.micro_batch });
    }
    if !run.flash_attention && run.cache == CacheShape::Quantised {
        return Err(GenerateError::QuantisedWithoutFlashAttention);
    }
    let mut engine = Operations {
        shape,
        run,
        rules: Rules { capability: card.capability, processors: card.processors, engine: run.engine },
        groups: Groups::default(),
    };
    if run.warm_up {
        // common_init_from_params runs BOS and EOS through the model before the first request.
        engine.forward(2, 1, CELLS)?;
    }
    // A conversation: each part of the prompt is followed by an answer, and the cache keeps both.
    let part = if run.part == 0 { run.context } else { run.part };
    let mut done = 0;
    while done < run.context {
        let until = run.context.min(done + part);
        engine.prompt(done, until)?;
        for token in 1..=run.answer {
            engine.forward(1, 1, cells(until + token))?;
        }
        done = until;
    }
    Ok(engine.groups.builder.finish())
}

/// Cells in use once `tokens` are in the cache.
fn cells(tokens: u64) -> u64 {
    tokens.next_multiple_of(CELLS)
}

/// Generator of one run's operations.
struct Operations<'a> {
    shape: &'a ModelShape,
    run: &'a GeneratedRun,
    rules: Rules,
    groups: Groups,
}

impl Operations<'_> {
    fn prompt(&mut self, from: u64, until: u64) -> Result<(), GenerateError> {
        let mut done = from;
        while done < until {
            let tokens = self.run.micro_batch.min(until - done);
            done += tokens;
            let outputs = match self.run.outputs {
                Outputs::Layers => tokens,
                Outputs::Last => u64::from(done == until),
            };
            self.forward(tokens, outputs, cells(done))?;
        }
        Ok(())
    }

    /// One pass of `tokens` through all layers, of which `outputs` tokens go on to the output matrix.
    fn forward(&mut self, tokens: u64, outputs: u64, cells: u64) -> Result<(), GenerateError> {
        for layer in 0..self.shape.layers {
            let last = layer + 1 == self.shape.layers;
            self.layer(layer, tokens, if last { outputs } else { tokens }, cells)?;
        }
        if self.run.outputs == Outputs::Last && outputs > 0 {
            self.matrix(self.shape.embedding, self.shape.vocabulary, outputs)?;
        }
        Ok(())
    }

    /// `llama-graph.cpp @ b10605`: Q, K, V, attention and its output for all tokens, the rest for those that
    /// go on.
    fn layer(&mut self, layer: u64, tokens: u64, going_on: u64, cells: u64) -> Result<(), GenerateError> {
        let shape = self.shape;
        if let Some(latent) = &shape.latent {
            return latent::attention(self, latent, tokens, cells);
        }
        let head = shape.head(layer);
        let (queries, keys) = (shape.heads * head.size, head.count * head.size);
        // Q, K and V are separate products, as in models without a fused matrix.
        for rows in [queries, keys, keys] {
            self.matrix(shape.embedding, rows, tokens)?;
        }
        let cells = match head.window {
            // A windowed cache holds the window and one micro-batch: llama-kv-cache-iswa.cpp @ b10605.
            Some(window) => cells.min((window + tokens.max(self.run.micro_batch)).next_multiple_of(CELLS)),
            None => cells,
        };
        attention::attention(self, head, tokens, cells)?;
        self.matrix(queries, shape.embedding, tokens)?;
        // No token has an output: the engine prunes the rest of the last layer from the graph.
        if going_on == 0 {
            return Ok(());
        }
        self.feed_forward(going_on)
    }

    fn feed_forward(&mut self, tokens: u64) -> Result<(), GenerateError> {
        let (embedding, width) = (self.shape.embedding, self.shape.feed_forward);
        // For one token gate and up are one kernel: ggml-cuda.cu:ggml_cuda_should_fuse_mul_mat @ b8799.
        let wide = if tokens == 1 { 1 } else { 2 };
        for _ in 0..wide {
            self.matrix_of_experts(embedding, width, tokens, true)?;
        }
        self.matrix_of_experts(width, embedding, tokens, false)
    }

    fn matrix(&mut self, columns: u64, rows: u64, tokens: u64) -> Result<(), GenerateError> {
        let group = product::dense(self.rules, tiled(columns, rows), tokens);
        self.groups.group(&group)
    }

    fn matrix_of_experts(
        &mut self,
        columns: u64,
        rows: u64,
        tokens: u64,
        shared: bool,
    ) -> Result<(), GenerateError> {
        let Some(experts) = &self.shape.experts else {
            return self.matrix(columns, rows, tokens);
        };
        let experts = product::ExpertProduct { count: experts.count, used: experts.used, shared };
        let group = product::of_experts(self.rules, experts, tiled(columns, rows), tokens);
        self.groups.group(&group)
    }
}

/// A quantised matrix of a type with an MMQ kernel, as most are.
fn tiled(width: u64, rows: u64) -> product::Matrix {
    product::Matrix { width, rows, kind: product::ProductKind::Tiles }
}

/// Builder of a trace from groups of blocks, which are allocated in order and freed in reverse.
#[derive(Default)]
struct Groups {
    builder: TraceBuilder,
    name: u64,
}

impl Groups {
    /// Adds one group; sizes of 0 are left out.
    fn group(&mut self, sizes: &[u64]) -> Result<(), GenerateError> {
        const STREAM: Stream = Stream(0);
        // Checked for each group: a run is bounded by its formulas, not by its input alone.
        if self.builder.steps() > MOST_STEPS {
            return Err(GenerateError::TooLong);
        }
        let first = self.name;
        for &size in sizes.iter().filter(|&&size| size > 0) {
            self.builder.allocate(self.name, size, STREAM).map_err(GenerateError::Step)?;
            self.name += 1;
        }
        // The scopes of ggml_cuda_pool_alloc end in reverse order.
        for name in (first..self.name).rev() {
            self.builder.free(name, None, STREAM).map_err(GenerateError::Step)?;
        }
        Ok(())
    }
}

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_traces;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
