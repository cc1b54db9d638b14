//! Holds the measured rates of one kind of card and of its host.
//!
//! DECISION: a product with a matrix takes a time for its kernels, for each row and for each step of a row.
//! At a batch of one, blocks of threads wait for their data, so a card does not reach the rate of its memory:
//! an H200 reads the weights of Llama 3 8B at 1.1 TB/s of 4.8.

use serde::{Deserialize, Serialize};

/// Rates in femtoseconds, so that whole numbers tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeedRates {
    /// A token, for the server and the launch of a graph.
    pub token: u64,
    /// An entry of the vocabulary, for the sampler.
    pub entry: u64,
    /// The kernel of a narrow norm.
    pub kernel: u64,
    /// A step of a row of Q4_K (`Format`).
    pub step: u64,
    /// A byte at the full rate of the card's memory.
    pub byte: u64,
    /// Half of the width of a range, in percent of the likely value.
    pub spread: u64,
    pub attention: AttentionRates,
    pub prefill: PrefillRates,
    pub host: HostRates,
}

/// Rates of attention to the cache, by the kernel (`fattn.cu: ggml_cuda_get_best_fattn_kernel @ 0.5.0`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionRates {
    /// A layer whose cache is long enough to occupy the whole card.
    pub filled: u64,
    /// A layer with a quantised cache: keys and values are rotated, quantised and stored.
    pub quantised: u64,
    /// The vector kernel: an element of a query at one position.
    pub vector: u64,
    /// The same with a quantised cache, of heads of up to 64 elements and of longer ones.
    pub vector_quantised: [u64; 2],
    /// The matrix kernel: a byte of keys and values in F16, where heads share them.
    pub grouped: u64,
    /// The same where each head has its own, and the start of such a layer.
    pub single: u64,
    pub matrix: u64,
    /// A byte of a quantised cache, which the matrix kernel needs in F16.
    pub converted: u64,
}

/// Rates of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefillRates {
    /// A product, one with experts, and another kernel, for each micro-batch.
    pub product: u64,
    pub routed_product: u64,
    pub kernel: u64,
    /// A million operations of dense matrices of Q4_K, and of experts.
    pub dense: u64,
    pub routed: u64,
    /// A million operations of attention where heads share keys, and where each has its own.
    pub grouped: u64,
    pub single: u64,
}

/// Rates of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRates {
    /// A byte of weights, and of weights that are decoded by a table.
    pub byte: u64,
    pub table_byte: u64,
    pub kernel: u64,
    /// A byte of the cache.
    pub cache: u64,
    /// The way of the activations to another device.
    pub crossing: u64,
    /// A byte of weights on its way to a card, for a prompt.
    pub bus: u64,
    /// A million operations of attention to a prompt.
    pub attended: u64,
}
