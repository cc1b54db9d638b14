//! Models that read and do not write: an embedding model, and the eye of another.

use super::Sheet;
use crate::model::gguf::{Datum, Draft, ValueType};
use crate::model::types::{F16, F32};

pub(super) fn nomic_embed() -> Draft {
    const EMBEDDING: u32 = 768;
    const WIDTH: u32 = 3072;
    const VOCABULARY: u32 = 30_528;
    /// `LLAMA_POOLING_TYPE_MEAN`.
    const MEAN: u32 = 1;
    const TOKEN_TYPES: u32 = 2;
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

/// SigLIP of 27 layers, 896 by 896 points in patches of 14.
pub(super) fn gemma3_projector() -> Draft {
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
