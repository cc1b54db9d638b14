//! Synthetic models with the shapes of real ones, and random weights or none.
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
pub use grown::{GROWN_CONTEXT, GrownModel, Growth};
pub use shapes::{SHAPES, shape};
pub use weights::Weights;
pub use zoo::{specimen, specimens};

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

#[cfg(test)]
mod tests {
    use plimsoll_model::gguf::Header;
    use plimsoll_model::{Dialect, Model, Tensor};

    use super::*;

    fn model(recipe: &Recipe, count: u16) -> Model {
        let drafts = recipe.files(count);
        let headers: Vec<Vec<u8>> = drafts.iter().map(DraftHeader::header).collect();
        let read = |(bytes, draft): (_, &DraftHeader)| {
            let bytes: &Vec<u8> = bytes;
            let length = Bytes::new(u64::try_from(bytes.len()).unwrap()) + draft.data_length();
            Header::read(bytes, length.get(), Dialect::Ggml).unwrap()
        };
        let mut read_all = Vec::new();
        for pair in headers.iter().zip(&drafts) {
            read_all.push(read(pair));
        }
        Model::from_headers(&read_all).unwrap()
    }

    /// What llama.cpp puts on a CUDA card and what it leaves to the host, in whole MiB rounded down: 128-byte
    /// alignment, and quantised rows padded to 512 elements (`ggml-cuda.cu: get_alloc_size @ b10605`).
    fn weights(model: &Model) -> (u64, u64) {
        let on_card = |tensor: &Tensor| {
            let tail = (512 - tensor.shape[0] % 512) % 512;
            let padding = tensor.kind.row(tail).filter(|_| tensor.kind.quantised()).unwrap_or_default();
            (tensor.bytes + padding).padded(128)
        };
        let (host, card): (Vec<_>, Vec<_>) =
            model.tensors.iter().partition(|tensor| tensor.name == "token_embd.weight");
        let card: Bytes = card.into_iter().map(on_card).sum();
        let host: Bytes = host.into_iter().map(|tensor| tensor.bytes).sum();
        (card.get() >> 20, host.get() >> 20)
    }

    #[test]
    fn the_measured_shapes_weigh_what_was_measured() {
        for (name, card, host) in [("l8", 4650, 281), ("q30", 30_658, 315), ("oss", 10_949, 586)] {
            let model = model(&shape(name).unwrap(), 1);
            assert_eq!(weights(&model), (card, host), "{name}");
        }
    }

    #[test]
    fn every_shape_is_a_model_that_is_known() {
        for (name, _) in SHAPES {
            let recipe = shape(name).unwrap();
            let model = model(&recipe, 1);
            assert!(model.hyper.known, "{name}");
            assert_eq!(model.hyper.layers, recipe.layers);
            assert_eq!(model.name.as_deref(), Some(*name));
        }
    }

    #[test]
    fn a_trillion_parameters_keep_one_latent_vector_a_token() {
        let model = model(&shape("kimi-k2").unwrap(), 1);
        assert_eq!((model.hyper.key_row(7), model.hyper.value_row(7)), (576, 0));
        let parameters: u64 = model.tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
        assert_eq!(parameters / 1_000_000_000, 1026);
    }

    #[test]
    fn files_of_a_set_make_the_same_model() {
        let recipe = shape("llama-70b").unwrap();
        let whole = model(&recipe, 1);
        let parts = model(&recipe, 6);
        assert_eq!(parts.hyper, whole.hyper);
        let names =
            |model: &Model| model.tensors.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&parts), names(&whole));
        for file in recipe.files(6) {
            let share = file.data_length().whole_mib();
            assert!((5_000..8_000).contains(&share), "{share}");
        }
    }

    #[test]
    fn weights_have_the_length_that_the_header_says() {
        for name in ["tiny", "tiny-embed"] {
            let recipe = shape(name).unwrap();
            for tensor in &recipe.files(1)[0].tensors {
                let length: usize = recipe.weights(tensor).map(|piece| piece.len()).sum();
                assert_eq!(Bytes::new(u64::try_from(length).unwrap()), tensor.bytes(), "{}", tensor.name);
            }
        }
    }

    #[test]
    fn the_tiny_shape_is_the_tiny_model_of_the_product() {
        let recipe = shape("tiny").unwrap();
        let draft = &recipe.files(1)[0];
        let tiny = plimsoll_model::tiny::TinyModel::default();
        assert_eq!(*draft, tiny.header());
        let data: Vec<u8> =
            draft.tensors.iter().flat_map(|tensor| recipe.weights(tensor)).flatten().collect();
        let file = tiny.file();
        assert_eq!(file[draft.header().len()..][..data.len()], data);
    }

    #[test]
    fn weights_are_the_same_each_time_and_differ_between_models() {
        let (tiny, other) = (shape("tiny").unwrap(), shape("tiny-embed").unwrap());
        let tensor = &tiny.files(1)[0].tensors[0];
        let data = |recipe: &Recipe| recipe.weights(tensor).flatten().collect::<Vec<u8>>();
        assert_eq!(data(&tiny), data(&tiny));
        assert_ne!(data(&tiny), data(&other));
    }
}
