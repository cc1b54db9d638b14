//! Synthetic model headers (specimens) for architectures beyond those of `shapes.rs`, one each, with a real
//! model's numbers.
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

/// Name, description and header of a specimen, with the millions of parameters of the real model; `None` for
/// a projector, whose tensors alone are no model.
struct Specimen(&'static str, &'static str, Option<u64>, fn() -> DraftHeader);

/// Every specimen. To add one, write a row and its function in the file of its kind.
fn all() -> impl Iterator<Item = &'static Specimen> {
    let kinds = [decoders::ROWS, encoders::ROWS, routed::ROWS, recurrent::ROWS, hybrids::ROWS];
    kinds.into_iter().flatten()
}

/// Name and description of every specimen.
pub fn specimens() -> impl Iterator<Item = (&'static str, &'static str)> {
    all().map(|&Specimen(name, description, ..)| (name, description))
}

/// Millions of parameters of the model that a specimen stands for.
pub fn million_parameters(name: &str) -> Option<u64> {
    let &Specimen(_, _, millions, _) = all().find(|specimen| specimen.0 == name)?;
    millions
}

/// The header of a specimen; `None` for a name that no specimen has.
pub fn specimen(name: &str) -> Option<DraftHeader> {
    let Specimen(.., header) = all().find(|specimen| specimen.0 == name)?;
    Some(header())
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
        Self { draft, architecture, prefix: String::new() }
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
        let mut vocabulary = crate::keys::filled(Vocabulary::bytes(), size);
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
