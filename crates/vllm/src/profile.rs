//! Computes bounds of what vLLM measures when it starts: the peak of activations, CUDA graphs, and memory
//! outside of PyTorch.
//!
//! vLLM runs one step of the largest size and takes its peak (`vllm/v1/worker/gpu_worker.py:
//! determine_available_memory @ 0.15`). The peak depends on kernels, so it is a range here. Its two ends are
//! from public logs (`data/vllm/logs.json`).

use plimsoll_base::{Bytes, Source};
use serde::Serialize;

use crate::config::{Attention, ModelConfig};

/// A size that is not known exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Range {
    pub low: Bytes,
    /// The value that most logs are near to.
    pub likely: Bytes,
    pub high: Bytes,
}

impl Range {
    pub fn exactly(bytes: Bytes) -> Self {
        Self { low: bytes, likely: bytes, high: bytes }
    }

    /// What remains of `whole` after all of `parts`.
    pub fn rest(whole: Bytes, parts: &[Self]) -> Self {
        let without = |part: fn(&Self) -> Bytes| whole.saturating_sub(parts.iter().map(part).sum());
        Self {
            low: without(|part| part.high),
            likely: without(|part| part.likely),
            high: without(|part| part.low),
        }
    }
}

/// Settings that decide the largest step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub tensor_parallel: u64,
    /// Tokens of one step, over all sequences.
    pub batched: u64,
    /// Sequences of one step.
    pub sequences: u64,
    /// True without CUDA graphs (`--enforce-eager`).
    pub is_eager: bool,
}

/// Bytes of the sampler for each sequence and word of the vocabulary, with its sort in PyTorch: logits in 32
/// bits, their sorted copy, its 64-bit indices, and probabilities. Logs with 256 to 1024 sequences have 38.4
/// to 38.9.
const SAMPLER: (u64, u64, u64) = (6, 39, 42);

impl Profile {
    /// Peak of activations: of the layers, or of the sampler after them.
    pub fn activations(&self, config: &ModelConfig) -> Range {
        let cards = self.tensor_parallel.max(1);
        let heads = match config.attention {
            Attention::Heads { heads, key, value } => (heads * (key + value)).div_ceil(cards),
            Attention::Latent { width, .. } => width,
        };
        // Two vectors between the layers, and the three of the MLP.
        let within = (3 * config.inner).div_ceil(cards).max(2 * config.hidden + heads);
        let layers = self.batched.saturating_mul(config.number).saturating_mul(2 * config.hidden + within);
        let words = self.sequences.min(self.batched).saturating_mul(config.vocabulary);
        let peak =
            |sampler: u64, share: u64| Bytes::new(words.saturating_mul(sampler).max(layers / 4 * share));
        Range {
            low: peak(SAMPLER.0, 2),
            likely: peak(SAMPLER.1, 4),
            high: peak(SAMPLER.2, 4) + Bytes::new(layers) + Bytes::mib(256),
        }
    }

    /// CUDA graphs, and their private pool.
    pub fn graphs(&self) -> Range {
        if self.is_eager {
            return Range::default();
        }
        Range { low: Bytes::mib(64), likely: Bytes::mib(600), high: Bytes::mib(1536) }
    }

    /// Memory that PyTorch does not count: libraries, and the buffers of NCCL and of its like between cards.
    pub fn outside(&self) -> Range {
        if self.tensor_parallel > 1 {
            Range { low: Bytes::mib(64), likely: Bytes::mib(512), high: Bytes::mib(2048) }
        } else {
            Range { low: Bytes::ZERO, likely: Bytes::mib(128), high: Bytes::mib(512) }
        }
    }

    pub fn source_of_activations() -> Source {
        Source::Calibration("data/vllm/logs.json: peak of the sampler or of the layers".into())
    }

    pub fn source_of_graphs() -> Source {
        Source::Calibration("data/vllm/logs.json: graph capture".into())
    }

    pub fn source_of_outside() -> Source {
        Source::Calibration("data/vllm/logs.json: non-torch memory".into())
    }
}
