//! What a model is: its tensors and its hyper-parameters, from the header bytes of its files.
//!
//! A header is hostile input. It is read by bounds-checked slices, never copied whole, and the weights behind
//! it are never touched: a model of a terabyte is known from a few megabytes.

mod hyper;
mod tensor;
pub mod types;

pub use hyper::{Experts, HyperParameters, Indexer, Mla, PerLayer, Recurrent, SlidingWindow};
pub use tensor::{Tensor, TensorType};
pub use types::Dialect;

/// A model as its header describes it, over all files of a split set.
#[derive(Clone, Debug)]
pub struct Model {
    /// `general.name`, for people.
    pub name: Option<String>,
    /// `general.architecture`, e.g. `llama`, `qwen3moe`, `gpt-oss`.
    pub architecture: String,
    pub hyper: HyperParameters,
    pub tensors: Vec<Tensor>,
}
