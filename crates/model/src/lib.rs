//! Describes models by their GGUF headers: tensors and hyper-parameters.
//!
//! To read a model, call [`gguf::Header::read`] for each file of [`split::siblings`], then
//! [`Model::from_headers`].
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod arch;
mod error;
pub mod gguf;
mod hyper;
pub mod repository;
pub mod split;
mod tensor;
pub mod tiny;
mod token_texts;
mod traits;
pub mod types;

pub use error::ModelError;
pub use hyper::{Experts, HyperParameters, Indexer, Mla, PerLayer, Pooling, Recurrent, SlidingWindow};
pub use tensor::{Tensor, TensorType};
pub use token_texts::TokenTexts;
pub use traits::ModelTraits;
pub use types::Dialect;

/// A model as described by its header, over all files of a split set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// `general.name`, for people.
    pub name: Option<String>,
    /// `general.architecture`, e.g. `llama`, `qwen3moe`, `gpt-oss`.
    pub architecture: String,
    pub traits: ModelTraits,
    pub hyper: HyperParameters,
    pub tensors: Vec<Tensor>,
}

impl Model {
    /// Puts the headers of all files of a model together, the first file first; most models have one.
    pub fn from_headers(headers: &[gguf::Header<'_>]) -> Result<Self, ModelError> {
        let tensors = split::join(headers)?;
        // Only the first file of a set carries the model's keys.
        let first = headers.first().ok_or(ModelError::NoFile)?;
        let architecture = first
            .text("general.architecture")?
            .ok_or_else(|| ModelError::MissingKey { key: "general.architecture".to_owned() })?;
        Ok(Self {
            // A name is for people: one that is no text is no reason to refuse the model.
            name: first.text("general.name").ok().flatten().map(str::to_owned),
            traits: ModelTraits::of(first),
            hyper: arch::read(first, architecture, &tensors)?,
            architecture: architecture.to_owned(),
            tensors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::gguf::{DraftHeader, Header};
    use super::*;

    #[test]
    fn a_llama_is_read_from_its_keys() {
        let mut draft = DraftHeader::default();
        draft.put("general.architecture", "llama");
        draft.put("general.name", "Llama 8B");
        for (key, number) in [
            ("llama.block_count", 32_u32),
            ("llama.context_length", 131_072),
            ("llama.embedding_length", 4096),
            ("llama.feed_forward_length", 14_336),
            ("llama.attention.head_count", 32),
            ("llama.attention.head_count_kv", 8),
            ("llama.vocab_size", 128_256),
        ] {
            draft.put(key, number);
        }
        let bytes = draft.header();
        let length = u64::try_from(bytes.len()).unwrap();
        let header = Header::read(&bytes, length, Dialect::Ggml).unwrap();
        let model = Model::from_headers(&[header]).unwrap();
        assert_eq!(model.name.as_deref(), Some("Llama 8B"));
        let hyper = &model.hyper;
        assert!(hyper.known && hyper.causal && hyper.caches(31) && !hyper.caches(32));
        assert_eq!((hyper.key_row(0), hyper.value_row(31)), (1024, 1024));
        assert_eq!((hyper.vocabulary, hyper.rope_dimension), (128_256, 128));
        assert_eq!(hyper.feed_forward.at(5), 14_336);
    }
}

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_model;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
