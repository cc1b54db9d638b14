//! Synthetic model headers (specimens) of encoders: embedding models, and the image projector of a multimodal
//! model.

use plimsoll_model::gguf::{Datum, DraftHeader, ValueType};
use plimsoll_model::types::{F16, F32, Q8_0};

use super::{Sheet, Specimen};

#[rustfmt::skip]
pub(super) const ROWS: &[Specimen] = &[
    Specimen("gemma3-4b-mmproj", "the projector of Gemma 3 4B, F16", None, gemma3_projector),
    Specimen("nomic-embed", "nomic-embed-text v1.5, F16, an encoder", Some(137), nomic_embed),
    Specimen("bge-base", "bge-base-en v1.5, F16, an encoder", Some(109), bge_base),
    Specimen("modernbert-base", "ModernBERT base, F16, an encoder with sliding windows", Some(149), modern_bert),
    Specimen("gemma-embed", "EmbeddingGemma 300M, Q8_0, an encoder with sliding windows", Some(303), embedding_gemma),
];

/// `LLAMA_POOLING_TYPE_MEAN`.
const MEAN: u32 = 1;
const TOKEN_TYPES: u32 = 2;

fn nomic_embed() -> DraftHeader {
    const EMBEDDING: u32 = 768;
    const WIDTH: u32 = 3072;
    const VOCABULARY: u32 = 30_528;
    let mut sheet = Sheet::new("nomic-bert", "nomic-embed");
    for (key, value) in [
        ("block_count", 12),
        ("context_length", 2048),
        ("embedding_length", EMBEDDING),
        ("feed_forward_length", WIDTH),
        ("attention.head_count", 12),
        ("pooling_type", MEAN),
    ] {
        sheet.key(key, value);
    }
    sheet.key("attention.layer_norm_epsilon", 1e-12_f32);
    sheet.key("attention.causal", false);
    sheet.key("rope.freq_base", 1000_f32);
    sheet.vocabulary(VOCABULARY);
    sheet.draft.put("tokenizer.ggml.token_type_count", TOKEN_TYPES);
    sheet.tensor("token_embd.weight", F16, &[EMBEDDING, VOCABULARY]);
    sheet.tensor("token_types.weight", F32, &[EMBEDDING, TOKEN_TYPES]);
    both(&mut sheet, "token_embd_norm", EMBEDDING);
    for layer in 0..12 {
        sheet.layer(layer);
        sheet.tensor("attn_qkv.weight", F16, &[EMBEDDING, 3 * EMBEDDING]);
        sheet.tensor("attn_output.weight", F16, &[EMBEDDING, EMBEDDING]);
        both(&mut sheet, "attn_output_norm", EMBEDDING);
        sheet.tensor("ffn_up.weight", F16, &[EMBEDDING, WIDTH]);
        sheet.tensor("ffn_gate.weight", F16, &[EMBEDDING, WIDTH]);
        sheet.tensor("ffn_down.weight", F16, &[WIDTH, EMBEDDING]);
        both(&mut sheet, "layer_output_norm", EMBEDDING);
    }
    sheet.draft
}

/// A weight and a bias.
fn both(sheet: &mut Sheet, name: &str, size: u32) {
    sheet.tensor(&format!("{name}.weight"), F32, &[size]);
    sheet.tensor(&format!("{name}.bias"), F32, &[size]);
}

/// The keys of an encoder that pools over its tokens.
fn encoder(architecture: &'static str, name: &str, sizes: [u32; 6]) -> Sheet {
    let [layers, context, embedding, feed_forward, heads, vocabulary] = sizes;
    let mut sheet = Sheet::new(architecture, name);
    for (key, value) in [
        ("block_count", layers),
        ("context_length", context),
        ("embedding_length", embedding),
        ("feed_forward_length", feed_forward),
        ("attention.head_count", heads),
        ("pooling_type", MEAN),
    ] {
        sheet.key(key, value);
    }
    sheet.key("attention.layer_norm_epsilon", 1e-12_f32);
    sheet.key("attention.causal", false);
    sheet.vocabulary(vocabulary);
    sheet
}

fn bge_base() -> DraftHeader {
    const EMBEDDING: u32 = 768;
    const WIDTH: u32 = 3072;
    const VOCABULARY: u32 = 30_522;
    const CONTEXT: u32 = 512;
    let mut sheet = encoder("bert", "bge-base", [12, CONTEXT, EMBEDDING, WIDTH, 12, VOCABULARY]);
    sheet.draft.put("tokenizer.ggml.token_type_count", TOKEN_TYPES);
    sheet.tensor("token_embd.weight", F16, &[EMBEDDING, VOCABULARY]);
    sheet.tensor("token_types.weight", F32, &[EMBEDDING, TOKEN_TYPES]);
    sheet.tensor("position_embd.weight", F32, &[EMBEDDING, CONTEXT]);
    both(&mut sheet, "token_embd_norm", EMBEDDING);
    for layer in 0..12 {
        sheet.layer(layer);
        for (name, from, to) in [
            ("attn_q", EMBEDDING, EMBEDDING),
            ("attn_k", EMBEDDING, EMBEDDING),
            ("attn_v", EMBEDDING, EMBEDDING),
            ("attn_output", EMBEDDING, EMBEDDING),
            ("ffn_up", EMBEDDING, WIDTH),
            ("ffn_down", WIDTH, EMBEDDING),
        ] {
            sheet.tensor(&format!("{name}.weight"), F16, &[from, to]);
            sheet.tensor(&format!("{name}.bias"), F32, &[to]);
        }
        both(&mut sheet, "attn_output_norm", EMBEDDING);
        both(&mut sheet, "layer_output_norm", EMBEDDING);
    }
    sheet.draft
}

/// Every third layer, from the first on, attends to all; the first has no norm before it.
fn modern_bert() -> DraftHeader {
    const EMBEDDING: u32 = 768;
    const WIDTH: u32 = 1152;
    const VOCABULARY: u32 = 50_368;
    let mut sheet = encoder("modern-bert", "modernbert-base", [22, 8192, EMBEDDING, WIDTH, 12, VOCABULARY]);
    sheet.key("attention.sliding_window", 128_u32);
    sheet.key("rope.freq_base", 160_000_f32);
    sheet.tensor("token_embd.weight", F16, &[EMBEDDING, VOCABULARY]);
    sheet.norm("token_embd_norm", EMBEDDING);
    sheet.norm("output_norm", EMBEDDING);
    for layer in 0..22 {
        sheet.layer(layer);
        if layer > 0 {
            sheet.norm("attn_norm", EMBEDDING);
        }
        sheet.tensor("attn_qkv.weight", F16, &[EMBEDDING, 3 * EMBEDDING]);
        sheet.tensor("attn_output.weight", F16, &[EMBEDDING, EMBEDDING]);
        sheet.norm("ffn_norm", EMBEDDING);
        sheet.tensor("ffn_up.weight", F16, &[EMBEDDING, 2 * WIDTH]);
        sheet.tensor("ffn_down.weight", F16, &[WIDTH, EMBEDDING]);
    }
    sheet.draft
}

/// Every sixth layer attends to all.
fn embedding_gemma() -> DraftHeader {
    const EMBEDDING: u32 = 768;
    const WIDTH: u32 = 1152;
    const VOCABULARY: u32 = 262_144;
    const HEAD: u32 = 256;
    const HEADS: u32 = 3;
    let mut sheet =
        encoder("gemma-embedding", "gemma-embed", [24, 2048, EMBEDDING, WIDTH, HEADS, VOCABULARY]);
    for (key, value) in [
        ("attention.head_count_kv", 1),
        ("attention.key_length", HEAD),
        ("attention.value_length", HEAD),
        ("attention.sliding_window", 512),
    ] {
        sheet.key(key, value);
    }
    sheet.key("attention.layer_norm_rms_epsilon", 1e-6_f32);
    sheet.tensor("token_embd.weight", Q8_0, &[EMBEDDING, VOCABULARY]);
    sheet.norm("output_norm", EMBEDDING);
    for layer in 0..24 {
        sheet.layer(layer);
        for norm in ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"] {
            sheet.norm(norm, EMBEDDING);
        }
        sheet.head_norms(HEAD);
        for (name, from, to) in [
            ("attn_q", EMBEDDING, HEADS * HEAD),
            ("attn_k", EMBEDDING, HEAD),
            ("attn_v", EMBEDDING, HEAD),
            ("attn_output", HEADS * HEAD, EMBEDDING),
            ("ffn_gate", EMBEDDING, WIDTH),
            ("ffn_up", EMBEDDING, WIDTH),
            ("ffn_down", WIDTH, EMBEDDING),
        ] {
            sheet.tensor(&format!("{name}.weight"), Q8_0, &[from, to]);
        }
    }
    sheet.draft
}

/// SigLIP of 27 layers, 896 by 896 points in patches of 14.
fn gemma3_projector() -> DraftHeader {
    const EMBEDDING: u32 = 1152;
    const WIDTH: u32 = 4304;
    const LAYERS: u32 = 27;
    const TEXT: u32 = 2560;
    let mut sheet = Sheet::new("clip", "gemma3-4b-mmproj");
    sheet.key("has_vision_encoder", true);
    sheet.key("projector_type", "gemma3");
    sheet.key("use_gelu", true);
    for (key, value) in [
        ("vision.image_size", 896),
        ("vision.patch_size", 14),
        ("vision.embedding_length", EMBEDDING),
        ("vision.feed_forward_length", WIDTH),
        ("vision.projection_dim", TEXT),
        ("vision.block_count", LAYERS),
        ("vision.attention.head_count", 16),
    ] {
        sheet.key(key, value);
    }
    sheet.key("vision.attention.layer_norm_epsilon", 1e-6_f32);
    for key in ["vision.image_mean", "vision.image_std"] {
        let half = u64::from(0.5_f32.to_bits());
        sheet.key(key, Datum::Numbers(ValueType::F32, vec![half; 3]));
    }
    sheet.tensor("v.patch_embd.weight", F16, &[14, 14, 3, EMBEDDING]);
    sheet.tensor("v.patch_embd.bias", F32, &[EMBEDDING]);
    sheet.tensor("v.position_embd.weight", F32, &[EMBEDDING, 4096]);
    both(&mut sheet, "v.post_ln", EMBEDDING);
    sheet.tensor("mm.input_projection.weight", F16, &[TEXT, EMBEDDING]);
    sheet.tensor("mm.soft_emb_norm.weight", F32, &[EMBEDDING]);
    for layer in 0..LAYERS {
        sheet.prefix = format!("v.blk.{layer}.");
        for (name, from, to) in [
            ("attn_q", EMBEDDING, EMBEDDING),
            ("attn_k", EMBEDDING, EMBEDDING),
            ("attn_v", EMBEDDING, EMBEDDING),
            ("attn_out", EMBEDDING, EMBEDDING),
            ("ffn_up", EMBEDDING, WIDTH),
            ("ffn_down", WIDTH, EMBEDDING),
        ] {
            sheet.tensor(&format!("{name}.weight"), F16, &[from, to]);
            sheet.tensor(&format!("{name}.bias"), F32, &[to]);
        }
        both(&mut sheet, "ln1", EMBEDDING);
        both(&mut sheet, "ln2", EMBEDDING);
    }
    sheet.draft
}
