//! Specimens: one synthetic model header for each further architecture, with a real model's numbers.
//!
//! A [`Recipe`](super::Recipe) describes models that are alike. These have little in common, so each is
//! written out separately, as `src/models/*.cpp: load_arch_hparams, load_arch_tensors @ b10605` reads it.
//! They are headers without weights; for planners, and for engines without a card, this is enough.

mod decoders;
mod encoders;
mod hybrids;
mod recurrent;
mod routed;

use plimsoll_model::TensorType;
use plimsoll_model::gguf::{Datum, DraftHeader, DraftTensor, ValueType};
use plimsoll_model::tiny::Vocabulary;
use plimsoll_model::types::{F32, Q4_K, Q6_K, Q8_0};

/// Name and description of every specimen.
pub const SPECIMENS: &[(&str, &str)] = &[
    (
        "llama-1b",
        "Llama 3.2 1B, Q4_K_M, output tied; a draft for the larger ones",
    ),
    ("qwen2-7b", "Qwen2.5 7B, Q4_K_M"),
    ("gemma3-4b", "Gemma 3 4B, Q4_K_M, sliding windows, output tied"),
    ("gemma3-4b-mmproj", "the projector of Gemma 3 4B, F16"),
    ("gemma3n-e2b", "Gemma 3n E2B, Q4_K_M, shared caches"),
    ("phi3-mini", "Phi 3 mini 128k, Q4_K_M, fused attention"),
    ("command-r", "Command R 35B, Q4_K_M, full attention heads"),
    ("nomic-embed", "nomic-embed-text v1.5, F16, an encoder"),
    (
        "glm4-air",
        "GLM 4.5 Air, Q4_K_M, routed experts, a prediction layer",
    ),
    (
        "qwen3-next",
        "Qwen3 Next 80B-A3B, Q4_K_M, gated delta net in three layers of four",
    ),
    ("mamba2", "Mamba 2 2.7B, Q4_K_M, no attention at all"),
    (
        "granite-h-tiny",
        "Granite 4.0 H Tiny, Q4_K_M, Mamba with four layers of attention",
    ),
    (
        "granite-h-micro",
        "Granite 4.0 H Micro, Q4_K_M, the same without experts",
    ),
    ("mamba-3b", "Mamba 2.8B, Q4_K_M, no attention at all"),
    (
        "falcon-mamba-7b",
        "FalconMamba 7B, Q4_K_M, the same with norms within its layers",
    ),
    ("jamba-3b", "Jamba 3B, Q4_K_M, Mamba with two layers of attention"),
    (
        "jamba-mini",
        "Jamba 1.5 mini, Q4_K_M, the same with experts in every second layer",
    ),
    (
        "nemotron-h-9b",
        "Nemotron Nano 9B v2, Q4_K_M, each layer one of Mamba 2, attention, feed-forward",
    ),
    (
        "nemotron-h-30b",
        "Nemotron 3 Nano 30B-A3B, Q4_K_M, the same with experts",
    ),
    (
        "falcon-h1-1b",
        "Falcon-H1 1.5B, Q4_K_M, attention and Mamba 2 side by side",
    ),
    ("lfm2-1b", "LFM2 1.2B, Q4_K_M, short convolutions and attention"),
    ("lfm2-8b", "LFM2 8B-A1B, Q4_K_M, the same with experts"),
    (
        "qwen35-9b",
        "Qwen 3.5 9B, Q4_K_M, gated delta net in three layers of four",
    ),
    ("qwen35-35b", "Qwen 3.5 35B-A3B, Q4_K_M, the same with experts"),
    ("bge-base", "bge-base-en v1.5, F16, an encoder"),
    (
        "modernbert-base",
        "ModernBERT base, F16, an encoder with sliding windows",
    ),
    (
        "gemma-embed",
        "EmbeddingGemma 300M, Q8_0, an encoder with sliding windows",
    ),
];

/// The header of a specimen; `None` for a name that is not in [`SPECIMENS`].
pub fn specimen(name: &str) -> Option<DraftHeader> {
    Some(match name {
        "llama-1b" => decoders::llama_1b(),
        "qwen2-7b" => decoders::qwen2_7b(),
        "gemma3-4b" => decoders::gemma3_4b(),
        "gemma3-4b-mmproj" => encoders::gemma3_projector(),
        "gemma3n-e2b" => decoders::gemma3n_e2b(),
        "phi3-mini" => decoders::phi3_mini(),
        "command-r" => decoders::command_r(),
        "nomic-embed" => encoders::nomic_embed(),
        "glm4-air" => routed::glm4_air(),
        "qwen3-next" => recurrent::qwen3_next(),
        "mamba2" => recurrent::mamba2(),
        "granite-h-tiny" => recurrent::granite_h_tiny(),
        "granite-h-micro" => hybrids::granite_h_micro(),
        "mamba-3b" => recurrent::mamba(),
        "falcon-mamba-7b" => recurrent::falcon_mamba(),
        "jamba-3b" => hybrids::jamba(),
        "jamba-mini" => hybrids::jamba_mini(),
        "nemotron-h-9b" => hybrids::nemotron_h(),
        "nemotron-h-30b" => hybrids::nemotron_h_moe(),
        "falcon-h1-1b" => hybrids::falcon_h1(),
        "lfm2-1b" => hybrids::lfm2(),
        "lfm2-8b" => hybrids::lfm2_moe(),
        "qwen35-9b" => hybrids::qwen35(),
        "qwen35-35b" => hybrids::qwen35_moe(),
        "bge-base" => encoders::bge_base(),
        "modernbert-base" => encoders::modern_bert(),
        "gemma-embed" => encoders::embedding_gemma(),
        _ => return None,
    })
}

/// What most matrices are quantised to, and those that are spared.
const MOST: TensorType = Q4_K;
const SPARED: TensorType = Q6_K;

/// Sizes that every decoder has.
#[derive(Clone, Copy)]
struct Sizes {
    layers: u32,
    context: u32,
    vocabulary: u32,
    embedding: u32,
    feed_forward: u32,
    heads: u32,
    heads_kv: u32,
    head: u32,
}

/// A header in the making.
struct Sheet {
    draft: DraftHeader,
    architecture: &'static str,
    /// `blk.N.` while a layer is described.
    prefix: String,
}

impl Sheet {
    fn new(architecture: &'static str, name: &str) -> Self {
        let mut draft = DraftHeader::default();
        draft.put("general.architecture", architecture);
        draft.put("general.type", "model");
        draft.put("general.name", name);
        Self {
            draft,
            architecture,
            prefix: String::new(),
        }
    }

    /// A decoder: its sizes, its vocabulary, and its first and last tensors.
    fn decoder(architecture: &'static str, name: &str, sizes: Sizes, output: Option<TensorType>) -> Self {
        let mut sheet = Self::new(architecture, name);
        for (key, value) in [
            ("block_count", sizes.layers),
            ("context_length", sizes.context),
            ("embedding_length", sizes.embedding),
            ("attention.head_count", sizes.heads),
            ("vocab_size", sizes.vocabulary),
        ] {
            sheet.key(key, value);
        }
        if sizes.feed_forward > 0 {
            sheet.key("feed_forward_length", sizes.feed_forward);
        }
        if sizes.head > 0 {
            sheet.key("attention.key_length", sizes.head);
            sheet.key("attention.value_length", sizes.head);
            sheet.key("rope.dimension_count", sizes.head);
        }
        sheet.key("attention.layer_norm_rms_epsilon", 1e-6_f32);
        sheet.vocabulary(sizes.vocabulary);
        sheet.tensor(
            "token_embd.weight",
            if output.is_some() { MOST } else { SPARED },
            &[sizes.embedding, sizes.vocabulary],
        );
        sheet.tensor("output_norm.weight", F32, &[sizes.embedding]);
        if let Some(kind) = output {
            sheet.tensor("output.weight", kind, &[sizes.embedding, sizes.vocabulary]);
        }
        sheet
    }

    fn key(&mut self, name: &str, value: impl Into<Datum>) {
        self.draft.put(format!("{}.{name}", self.architecture), value);
    }

    fn list(&mut self, name: &str, values: impl IntoIterator<Item = u32>) {
        let values = values.into_iter().map(u64::from).collect();
        self.key(name, Datum::Numbers(ValueType::U32, values));
    }

    fn vocabulary(&mut self, size: u32) {
        let mut vocabulary = Vocabulary::bytes().filled(size);
        // llama.cpp insists on this one in some families (`llama-vocab.cpp: load @ b10605`).
        if let Some(last) = vocabulary.tokens.last_mut() {
            "<|endoftext|>".clone_into(&mut last.text);
        }
        vocabulary.put(&mut self.draft);
    }

    /// A row that is no whole number of blocks falls back to Q8_0, as in llama.cpp's quantiser.
    fn tensor(&mut self, name: &str, kind: TensorType, shape: &[u32]) {
        let row = shape.first().map_or(0, |&row| row.into());
        let kind = if kind.row(row).is_some() { kind } else { Q8_0 };
        self.draft.tensors.push(DraftTensor {
            name: format!("{}{name}", self.prefix),
            kind,
            shape: shape.iter().map(|&size| size.into()).collect(),
        });
    }

    fn layer(&mut self, number: u32) {
        self.prefix = format!("blk.{number}.");
    }

    /// Queries, keys, values and the way out; queries `wide` times as wide as their heads.
    fn attention(&mut self, sizes: Sizes, wide: u32) {
        let (query, key) = (sizes.heads * sizes.head, sizes.heads_kv * sizes.head);
        self.tensor("attn_q.weight", MOST, &[sizes.embedding, wide * query]);
        self.tensor("attn_k.weight", MOST, &[sizes.embedding, key]);
        self.tensor("attn_v.weight", SPARED, &[sizes.embedding, key]);
        self.tensor("attn_output.weight", MOST, &[query, sizes.embedding]);
    }

    fn biases(&mut self, sizes: Sizes) {
        let (query, key) = (sizes.heads * sizes.head, sizes.heads_kv * sizes.head);
        for (name, size) in [("attn_q.bias", query), ("attn_k.bias", key), ("attn_v.bias", key)] {
            self.tensor(name, F32, &[size]);
        }
    }

    fn head_norms(&mut self, head: u32) {
        self.tensor("attn_q_norm.weight", F32, &[head]);
        self.tensor("attn_k_norm.weight", F32, &[head]);
    }

    fn norm(&mut self, name: &str, size: u32) {
        self.tensor(&format!("{name}.weight"), F32, &[size]);
    }

    /// Gate, up and down; `suffix` is `_shexp` for experts that all tokens share.
    fn feed_forward(&mut self, embedding: u32, width: u32, suffix: &str) {
        self.tensor(&format!("ffn_gate{suffix}.weight"), MOST, &[embedding, width]);
        self.tensor(&format!("ffn_up{suffix}.weight"), MOST, &[embedding, width]);
        self.tensor(&format!("ffn_down{suffix}.weight"), SPARED, &[width, embedding]);
    }

    fn experts(&mut self, embedding: u32, width: u32, count: u32) {
        self.tensor("ffn_gate_inp.weight", F32, &[embedding, count]);
        self.tensor("ffn_gate_exps.weight", MOST, &[embedding, width, count]);
        self.tensor("ffn_up_exps.weight", MOST, &[embedding, width, count]);
        self.tensor("ffn_down_exps.weight", SPARED, &[width, embedding, count]);
    }

    fn expert_keys(&mut self, count: u32, used: u32, width: u32) {
        self.key("expert_count", count);
        self.key("expert_used_count", used);
        self.key("expert_feed_forward_length", width);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::gguf::Header;
    use plimsoll_model::{Dialect, Model};

    use super::*;

    fn model(name: &str) -> Model {
        let draft = specimen(name).unwrap();
        let bytes = draft.header();
        let length = u64::try_from(bytes.len()).unwrap() + draft.data_length().get();
        Model::from_headers(&[Header::read(&bytes, length, Dialect::Ggml).unwrap()]).unwrap()
    }

    #[test]
    fn every_specimen_has_its_models_parameters() {
        for (name, millions) in [
            ("llama-1b", 1236),
            ("qwen2-7b", 7616),
            ("gemma3-4b", 3880),
            ("gemma3n-e2b", 4458),
            ("phi3-mini", 3821),
            ("command-r", 34_981),
            ("nomic-embed", 137),
            ("glm4-air", 110_469),
            ("qwen3-next", 79_674),
            ("mamba2", 2702),
            ("granite-h-tiny", 6939),
            ("granite-h-micro", 3191),
            ("mamba-3b", 2768),
            ("falcon-mamba-7b", 7006),
            ("jamba-3b", 3029),
            ("jamba-mini", 51_305),
            ("nemotron-h-9b", 8888),
            ("nemotron-h-30b", 31_578),
            ("falcon-h1-1b", 1479),
            ("lfm2-1b", 1170),
            ("lfm2-8b", 8340),
            ("qwen35-9b", 8950),
            ("qwen35-35b", 34_661),
            ("bge-base", 109),
            ("modernbert-base", 149),
            ("gemma-embed", 303),
        ] {
            let model = model(name);
            let count: u64 = model.tensors.iter().map(plimsoll_model::Tensor::elements).sum();
            let found = count / 1_000_000;
            assert!(
                found.abs_diff(millions) <= millions / 200 + 1,
                "{name}: {found} million"
            );
            assert!(model.hyper.known, "{name}");
        }
        assert_eq!(SPECIMENS.len(), 27);
    }
}
