//! Synthetic model headers (specimens) of decoders with attention in all layers.

use plimsoll_model::gguf::DraftHeader;
use plimsoll_model::types::{F16, F32};

use super::{MOST, SPARED, Sheet, Sizes, Specimen};

#[rustfmt::skip]
pub(super) const ROWS: &[Specimen] = &[
    Specimen("llama-1b", "Llama 3.2 1B, Q4_K_M, output tied; a draft for the larger ones", Some(1236), llama_1b),
    Specimen("qwen2-7b", "Qwen2.5 7B, Q4_K_M", Some(7616), qwen2_7b),
    Specimen("gemma3-4b", "Gemma 3 4B, Q4_K_M, sliding windows, output tied", Some(3880), gemma3_4b),
    Specimen("gemma3n-e2b", "Gemma 3n E2B, Q4_K_M, shared caches", Some(4458), gemma3n_e2b),
    Specimen("phi3-mini", "Phi 3 mini 128k, Q4_K_M, fused attention", Some(3821), phi3_mini),
    Specimen("command-r", "Command R 35B, Q4_K_M, full attention heads", Some(34_981), command_r),
];

fn llama_1b() -> DraftHeader {
    let sizes = Sizes {
        layers: 16,
        context: 131_072,
        vocabulary: 128_256,
        embedding: 2048,
        feed_forward: 8192,
        heads: 32,
        heads_kv: 8,
        head: 64,
    };
    let mut sheet = Sheet::decoder("llama", "llama-1b", sizes, None);
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    sheet.key("rope.freq_base", 500_000_f32);
    sheet.tensor("rope_freqs.weight", F32, &[sizes.head / 2]);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        sheet.attention(sizes, 1);
        sheet.norm("ffn_norm", sizes.embedding);
        sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    }
    sheet.draft
}

fn qwen2_7b() -> DraftHeader {
    let sizes = Sizes {
        layers: 28,
        context: 131_072,
        vocabulary: 152_064,
        embedding: 3584,
        feed_forward: 18_944,
        heads: 28,
        heads_kv: 4,
        head: 128,
    };
    let mut sheet = Sheet::decoder("qwen2", "qwen2-7b", sizes, Some(SPARED));
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        sheet.attention(sizes, 1);
        sheet.biases(sizes);
        sheet.norm("ffn_norm", sizes.embedding);
        sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    }
    sheet.draft
}

const GEMMA3_4B: Sizes = Sizes {
    layers: 34,
    context: 131_072,
    vocabulary: 262_208,
    embedding: 2560,
    feed_forward: 10_240,
    heads: 8,
    heads_kv: 4,
    head: 256,
};

fn gemma3_4b() -> DraftHeader {
    let sizes = GEMMA3_4B;
    let mut sheet = Sheet::decoder("gemma3", "gemma3-4b", sizes, None);
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    sheet.key("attention.sliding_window", 1024_u32);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        gemma_layer(&mut sheet, sizes);
    }
    sheet.draft
}

fn gemma_layer(sheet: &mut Sheet, sizes: Sizes) {
    sheet.norm("attn_norm", sizes.embedding);
    sheet.attention(sizes, 1);
    sheet.head_norms(sizes.head);
    sheet.norm("post_attention_norm", sizes.embedding);
    sheet.norm("ffn_norm", sizes.embedding);
    sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    sheet.norm("post_ffw_norm", sizes.embedding);
}

/// Four streams (AltUp), a low-rank branch (LAuReL) of 64, and 256 numbers a token and layer.
fn gemma3n_e2b() -> DraftHeader {
    const STREAMS: u32 = 4;
    const LOW_RANK: u32 = 64;
    const PER_LAYER: u32 = 256;
    let sizes = Sizes {
        layers: 30,
        context: 32_768,
        vocabulary: 262_144,
        embedding: 2048,
        feed_forward: 8192,
        heads: 8,
        heads_kv: 2,
        head: 256,
    };
    let mut sheet = Sheet::decoder("gemma3n", "gemma3n-e2b", sizes, None);
    let embedding = sizes.embedding;
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    sheet.key("attention.sliding_window", 512_u32);
    for name in ["altup_proj.weight", "altup_unembd_proj.weight"] {
        sheet.tensor(name, F16, &[embedding, embedding, STREAMS - 1]);
    }
    let all = PER_LAYER * sizes.layers;
    sheet.tensor("per_layer_token_embd.weight", SPARED, &[all, sizes.vocabulary]);
    sheet.tensor("per_layer_model_proj.weight", F16, &[embedding, all]);
    sheet.norm("per_layer_proj_norm", PER_LAYER);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        gemma_layer(&mut sheet, sizes);
        sheet.tensor("inp_gate.weight", F32, &[embedding, PER_LAYER]);
        sheet.tensor("proj.weight", F32, &[PER_LAYER, embedding]);
        sheet.norm("post_norm", embedding);
        sheet.tensor("altup_correct_coef.weight", F32, &[STREAMS, STREAMS]);
        sheet.norm("altup_correct_scale", embedding);
        sheet.tensor("altup_predict_coef.weight", F32, &[STREAMS, STREAMS * STREAMS]);
        sheet.tensor("altup_router.weight", F32, &[embedding, STREAMS]);
        sheet.norm("altup_router_norm", embedding);
        sheet.tensor("laurel_l.weight", F32, &[embedding, LOW_RANK]);
        sheet.tensor("laurel_r.weight", F32, &[LOW_RANK, embedding]);
        sheet.norm("laurel_post_norm", embedding);
    }
    sheet.draft
}

fn phi3_mini() -> DraftHeader {
    let sizes = Sizes {
        layers: 32,
        context: 131_072,
        vocabulary: 32_064,
        embedding: 3072,
        feed_forward: 8192,
        heads: 32,
        heads_kv: 32,
        head: 96,
    };
    let mut sheet = Sheet::decoder("phi3", "phi3-mini", sizes, Some(SPARED));
    let embedding = sizes.embedding;
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    sheet.key("rope.scaling.original_context_length", 4096_u32);
    sheet.key("attention.sliding_window", 262_144_u32);
    for name in ["rope_factors_long.weight", "rope_factors_short.weight"] {
        sheet.tensor(name, F32, &[sizes.head / 2]);
    }
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", embedding);
        sheet.tensor("attn_qkv.weight", MOST, &[embedding, 3 * embedding]);
        sheet.tensor("attn_output.weight", MOST, &[embedding, embedding]);
        sheet.norm("ffn_norm", embedding);
        sheet.tensor("ffn_up.weight", MOST, &[embedding, 2 * sizes.feed_forward]);
        sheet.tensor("ffn_down.weight", SPARED, &[sizes.feed_forward, embedding]);
    }
    sheet.draft
}

fn command_r() -> DraftHeader {
    let sizes = Sizes {
        layers: 40,
        context: 131_072,
        vocabulary: 256_000,
        embedding: 8192,
        feed_forward: 22_528,
        heads: 64,
        heads_kv: 64,
        head: 128,
    };
    let mut sheet = Sheet::decoder("command-r", "command-r", sizes, None);
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    sheet.key("attention.layer_norm_epsilon", 1e-5_f32);
    sheet.key("logit_scale", 0.0625_f32);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        sheet.attention(sizes, 1);
        sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    }
    sheet.draft
}
