//! Holds the measured rates of one kind of card and of its host.
//!
//! DECISION: a product with a matrix takes a time for its kernels and for each step of a row, whatever the
//! format. At a batch of one, blocks of threads wait for their data, so a card does not reach the rate of its
//! memory: an H200 reads the weights of Llama 3 8B at 1.1 TB/s of 4.8.

use serde::{Deserialize, Serialize};

/// Rates in femtoseconds, so that whole numbers tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeedRates {
    /// A token, for the server and the launch of a graph.
    pub token: u64,
    /// An entry of the vocabulary, for the sampler.
    pub entry: u64,
    pub kernel: u64,
    /// A step of a row (`Format`).
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
    /// A layer whose cache is long enough to occupy the whole card, of an F16 and of a quantised cache.
    pub filled: [u64; 2],
    /// The vector kernel: a layer with a quantised cache.
    pub quantised: u64,
    /// An element of a query at one position, of heads of up to 64 elements and of longer ones.
    pub vector: [u64; 2],
    /// The same with a quantised cache.
    pub vector_quantised: [u64; 2],
    /// The matrix kernel: a layer whose heads share no key, of an F16 and of a quantised cache.
    pub matrix: [u64; 2],
    /// A byte of the cache where five heads or more share a key.
    pub grouped: u64,
    /// The same with fewer heads to a key, of an F16 and of a quantised cache.
    pub single: [u64; 2],
}

/// Rates of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefillRates {
    /// A kernel, for each token.
    pub kernel: u64,
    /// A million operations of dense matrices, and of experts.
    pub dense: u64,
    pub routed: u64,
    /// A million operations of attention where heads share a key, and where each has its own.
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
}
