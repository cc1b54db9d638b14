//! Generates tiny llama models with random weights, which every build of llama.cpp can load.
//!
//! `plimsoll quickstart` serves two of them and `plimsoll measure calibrate` runs one.

mod vocabulary;
mod weights;

use super::TensorType;
use super::gguf::{DraftHeader, DraftTensor};
use super::types::F32;

pub use vocabulary::{Token, Vocabulary};
pub use weights::{Rows, encode, half, nearest};

/// Sizes and types of a tiny model; the default is 2 layers in F32, below 2 MiB as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TinyModel {
    pub name: &'static str,
    pub layers: u32,
    pub embedding: u32,
    pub feed_forward: u32,
    pub heads: u32,
    pub heads_kv: u32,
    pub head_length: u32,
    /// The type of most matrices; embedding, output and norms are F32.
    pub matrix: TensorType,
    /// The type of `attn_v` and `ffn_down`, which quantisers keep at a higher precision.
    pub spared: TensorType,
    pub seed: u64,
}

impl Default for TinyModel {
    fn default() -> Self {
        Self {
            name: "tiny",
            layers: 2,
            embedding: 128,
            feed_forward: 256,
            heads: 4,
            heads_kv: 2,
            // One block of a quantised cache: a shorter head could not be stored as q8_0.
            head_length: 32,
            matrix: F32,
            spared: F32,
            seed: 7,
        }
    }
}

impl TinyModel {
    /// The header of the model's one file.
    pub fn header(&self) -> DraftHeader {
        let vocabulary = Vocabulary::words();
        let mut draft = DraftHeader::default();
        draft.put("general.architecture", "llama");
        draft.put("general.type", "model");
        draft.put("general.name", self.name);
        for (key, number) in [
            ("block_count", self.layers),
            // Enough for every prompt of the tour and of calibration.
            ("context_length", 4096),
            ("embedding_length", self.embedding),
            ("feed_forward_length", self.feed_forward),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.heads_kv),
            ("attention.key_length", self.head_length),
            ("attention.value_length", self.head_length),
        ] {
            draft.put(format!("llama.{key}"), number);
        }
        draft.put("llama.attention.layer_norm_rms_epsilon", 1e-5_f32);
        draft.put("llama.rope.dimension_count", self.head_length);
        draft.put("llama.rope.freq_base", 500_000_f32);
        draft.put("llama.vocab_size", vocabulary.len());
        vocabulary.put(&mut draft);
        // After the keys: gguf.cpp reads tensors last.
        draft.tensors = self.tensors(vocabulary.len());
        draft
    }

    /// The tensors as `llama.cpp/src/models/llama.cpp: load_arch_tensors @ b10605` asks for them.
    fn tensors(&self, vocabulary: u32) -> Vec<DraftTensor> {
        let Self { embedding, feed_forward, matrix, spared, .. } = *self;
        let query = self.heads.saturating_mul(self.head_length);
        let key = self.heads_kv.saturating_mul(self.head_length);
        let tensor = |name: String, kind, shape: &[u32]| DraftTensor {
            name: format!("{name}.weight"),
            kind,
            shape: shape.iter().map(|&size| size.into()).collect(),
        };
        let mut tensors = vec![
            tensor("token_embd".to_owned(), F32, &[embedding, vocabulary]),
            tensor("output_norm".to_owned(), F32, &[embedding]),
            tensor("output".to_owned(), F32, &[embedding, vocabulary]),
        ];
        for layer in 0..self.layers {
            // Loaders find tensors by name, so this order is one of many.
            let in_layer = [
                ("attn_norm", F32, &[embedding][..]),
                ("attn_q", matrix, &[embedding, query]),
                ("attn_k", matrix, &[embedding, key]),
                ("attn_v", spared, &[embedding, key]),
                ("attn_output", matrix, &[query, embedding]),
                ("ffn_norm", F32, &[embedding]),
                ("ffn_gate", matrix, &[embedding, feed_forward]),
                ("ffn_up", matrix, &[embedding, feed_forward]),
                ("ffn_down", spared, &[feed_forward, embedding]),
            ];
            tensors.extend(
                in_layer.map(|(name, kind, shape)| tensor(format!("blk.{layer}.{name}"), kind, shape)),
            );
        }
        tensors
    }

    /// The whole file; the same bytes on every call.
    pub fn file(&self) -> Vec<u8> {
        let draft = self.header();
        let mut file = draft.header();
        let start = file.len();
        for (tensor, offset) in draft.tensors.iter().zip(draft.offsets()) {
            // Tensors start at multiples of the alignment, so some bytes between two of them hold nothing.
            file.resize(start + usize::try_from(offset.get()).unwrap_or(0), 0);
            let mut rows = Rows::new(tensor, self.seed, true);
            while let Some(row) = rows.next_row() {
                encode(tensor.kind, row, &mut file);
            }
        }
        let length = usize::try_from(draft.data_length().get()).unwrap_or(0);
        file.resize(start + length, 0);
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Header;
    use crate::types::{F16, Q8_0};
    use crate::{Dialect, Model};

    #[test]
    fn the_file_reads_as_the_model_it_describes() {
        let tiny = TinyModel { layers: 3, matrix: Q8_0, spared: F16, ..TinyModel::default() };
        let file = tiny.file();
        let length = u64::try_from(file.len()).unwrap();
        let header = Header::read(&file, length, Dialect::Ggml).unwrap();
        let model = Model::from_headers(&[header]).unwrap();
        assert!(model.hyper.known);
        assert_eq!((model.hyper.layers, model.tensors.len()), (3, 30));
        assert_eq!(model.hyper.vocabulary, Vocabulary::words().len());
        assert_eq!(file, tiny.file());
    }
}
