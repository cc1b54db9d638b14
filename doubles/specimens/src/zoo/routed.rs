//! Synthetic model headers (specimens) of mixture-of-experts decoders that `shapes.rs` does not cover.

use plimsoll_model::gguf::DraftHeader;
use plimsoll_model::types::F32;

use super::{MOST, SPARED, Sheet, Sizes, Specimen};

#[rustfmt::skip]
pub(super) const ROWS: &[Specimen] = &[
    Specimen("glm4-air", "GLM 4.5 Air, Q4_K_M, routed experts, a prediction layer", Some(110_469), glm4_air),
];

/// One dense layer, 45 with experts, and one that predicts the token after next.
fn glm4_air() -> DraftHeader {
    const EXPERTS: u32 = 128;
    const WIDTH: u32 = 1408;
    const TRUNK: u32 = 46;
    let sizes = Sizes {
        layers: TRUNK + 1,
        context: 131_072,
        vocabulary: 151_552,
        embedding: 4096,
        feed_forward: 10_944,
        heads: 96,
        heads_kv: 8,
        head: 128,
    };
    let mut sheet = Sheet::decoder("glm4moe", "glm4-air", sizes, Some(SPARED));
    let embedding = sizes.embedding;
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    sheet.expert_keys(EXPERTS, 8, WIDTH);
    for (key, value) in
        [("expert_shared_count", 1_u32), ("leading_dense_block_count", 1), ("nextn_predict_layers", 1)]
    {
        sheet.key(key, value);
    }
    sheet.key("expert_weights_scale", 1_f32);
    sheet.key("expert_weights_norm", true);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", embedding);
        sheet.attention(sizes, 1);
        sheet.biases(sizes);
        sheet.norm("post_attention_norm", embedding);
        if layer == 0 {
            sheet.feed_forward(embedding, sizes.feed_forward, "");
        } else {
            sheet.experts(embedding, WIDTH, EXPERTS);
            sheet.tensor("exp_probs_b.bias", F32, &[EXPERTS]);
            sheet.feed_forward(embedding, WIDTH, "_shexp");
        }
    }
    for (name, kind, shape) in [
        ("nextn.eh_proj.weight", MOST, &[2 * embedding, embedding][..]),
        ("nextn.enorm.weight", F32, &[embedding]),
        ("nextn.hnorm.weight", F32, &[embedding]),
        ("nextn.embed_tokens.weight", MOST, &[embedding, sizes.vocabulary]),
        ("nextn.shared_head_head.weight", MOST, &[embedding, sizes.vocabulary]),
        ("nextn.shared_head_norm.weight", F32, &[embedding]),
    ] {
        sheet.tensor(name, kind, shape);
    }
    sheet.draft
}
