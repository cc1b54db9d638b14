//! Makes synthetic models with the shapes of real ones, and with random weights or none.
//!
//! A [`Recipe`] describes a model; it gives the headers of its files and, on demand, the bytes of each
//! tensor. A file may be a header followed by a hole. Engines check only that a file is long enough, planners
//! read no weights, and zeros are valid in every quantisation. The small recipes have weights that answer in
//! words, so a real engine serves them on any machine in milliseconds. This library writes no files; the
//! caller writes the bytes.
#![forbid(unsafe_code)]

mod file;
mod grown;
mod keys;
mod shapes;
mod tensors;
mod weights;
mod zoo;

use plimsoll_base::Bytes;
use plimsoll_model::TensorType;
use plimsoll_model::gguf::{DraftHeader, DraftTensor};
use plimsoll_model::tiny::Vocabulary;

pub use file::{Changes, WriteError, Written, write, write_header};
pub use grown::{GROWN_CONTEXT, GrownModel, Growth, MOST_TENSORS};
pub use shapes::{SHAPES, shape};
pub use weights::{Weights, encode_q4_0};
pub use zoo::{million_parameters, specimen, specimens};

/// Which tensors and keys a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Llama,
    Qwen3,
    Qwen3Moe,
    GptOss,
    DeepSeek2,
}

/// The types of the matrices; norms, biases and routers are F32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    pub embedding: TensorType,
    /// `None` where the output is the embedding again.
    pub output: Option<TensorType>,
    pub matrix: TensorType,
    /// `attn_v` and `ffn_down`, which quantisers spare.
    pub spared: TensorType,
    pub experts: TensorType,
}

/// The sizes of the experts, 0 where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertSizes {
    pub count: u32,
    pub used: u32,
    pub feed_forward: u32,
}

/// What the tensors hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Numbers without meaning; only for timing and memory.
    Noise,
    /// Random as well, but the model answers in words, and stops.
    Words,
}

/// A model to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub name: &'static str,
    pub family: Family,
    pub layers: u32,
    pub context: u32,
    pub vocabulary: u32,
    pub embedding: u32,
    pub feed_forward: u32,
    pub heads: u32,
    pub heads_kv: u32,
    pub head_length: u32,
    pub experts: ExpertSizes,
    pub kinds: Kinds,
    pub contents: Contents,
    /// Marks an embedding model that pools by the mean.
    pub pools: bool,
    pub seed: u64,
}

impl Recipe {
    /// The headers of the model's files: one, or as many as asked for, each with tensors of about equal
    /// weight.
    pub fn files(&self, count: u16) -> Vec<DraftHeader> {
        let tensors = tensors::list(self);
        let first = DraftHeader { entries: keys::entries(self), ..DraftHeader::default() };
        if count <= 1 {
            return vec![DraftHeader { tensors, ..first }];
        }
        let total = tensors.len();
        let mut files: Vec<DraftHeader> = (0..count).map(|_| DraftHeader::default()).collect();
        files[0] = first;
        deal(tensors, &mut files);
        for (number, file) in (0_u16..).zip(&mut files) {
            keys::put_split(file, number, count, total);
        }
        files
    }

    /// The tokens that the contents need.
    fn tokens(&self) -> Vocabulary {
        match self.contents {
            Contents::Noise => Vocabulary::bytes(),
            Contents::Words => Vocabulary::words(),
        }
    }

    /// Tokens of the model: as many as it asks for, but no fewer than its contents need.
    fn vocabulary_size(&self) -> u32 {
        self.vocabulary.max(self.tokens().len())
    }

    /// The data of one of its tensors, piece by piece; the same on every call.
    pub fn weights<'a>(&'a self, tensor: &'a DraftTensor) -> Weights<'a> {
        Weights::new(self, tensor)
    }
}

/// Deals tensors out in order, a new file whenever one has its share.
fn deal(tensors: Vec<DraftTensor>, files: &mut [DraftHeader]) {
    let total: Bytes = tensors.iter().map(DraftTensor::bytes).sum();
    let count = u64::try_from(files.len()).unwrap_or(1);
    let mut done = Bytes::ZERO;
    let mut file = 0;
    for tensor in tensors {
        let middle = done + tensor.bytes().scaled(1, 2);
        while file + 1 < files.len() && middle >= total.scaled(share(file), count) {
            file += 1;
        }
        done += tensor.bytes();
        files[file].tensors.push(tensor);
    }
}

fn share(file: usize) -> u64 {
    u64::try_from(file).unwrap_or(0) + 1
}
