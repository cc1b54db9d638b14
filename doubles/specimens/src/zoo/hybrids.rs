//! Synthetic model headers (specimens) of hybrid decoders: attention in a few layers, or in a part of each,
//! and recurrent states in the rest.

use plimsoll_model::gguf::{Datum, DraftHeader, ValueType};
use plimsoll_model::types::{F32, Q8_0};

use super::recurrent::{State, delta_net, keys, mamba_layer, mamba2_layer};
use super::{MOST, SPARED, Sheet, Sizes, Specimen};

#[rustfmt::skip]
pub(super) const ROWS: &[Specimen] = &[
    Specimen("granite-h-micro", "Granite 4.0 H Micro, Q4_K_M, the same without experts", Some(3191), granite_h_micro),
    Specimen("jamba-3b", "Jamba 3B, Q4_K_M, Mamba with two layers of attention", Some(3029), jamba),
    Specimen("jamba-mini", "Jamba 1.5 mini, Q4_K_M, the same with experts in every second layer", Some(51_305), jamba_mini),
    Specimen("nemotron-h-9b", "Nemotron Nano 9B v2, Q4_K_M, each layer one of Mamba 2, attention, feed-forward", Some(8888), nemotron_h),
    Specimen("nemotron-h-30b", "Nemotron 3 Nano 30B-A3B, Q4_K_M, the same with experts", Some(31_578), nemotron_h_moe),
    Specimen("falcon-h1-1b", "Falcon-H1 1.5B, Q4_K_M, attention and Mamba 2 side by side", Some(1479), falcon_h1),
    Specimen("lfm2-1b", "LFM2 1.2B, Q4_K_M, short convolutions and attention", Some(1170), lfm2),
    Specimen("lfm2-8b", "LFM2 8B-A1B, Q4_K_M, the same with experts", Some(8340), lfm2_moe),
    Specimen("qwen35-9b", "Qwen 3.5 9B, Q4_K_M, gated delta net in three layers of four", Some(8950), qwen35),
    Specimen("qwen35-35b", "Qwen 3.5 35B-A3B, Q4_K_M, the same with experts", Some(34_661), qwen35_moe),
    Specimen("qwen36-27b-mtp", "Qwen 3.6 27B, Q4_K_M, gated delta net, and a layer that predicts", Some(27_320), qwen36_mtp),
    Specimen("qwen35-35b-mtp", "Qwen 3.5 35B-A3B, Q4_K_M, with experts, and a layer that predicts", Some(35_508), qwen35_moe_mtp),
];

/// States the KV heads of the layers that attend, and 0 for the rest.
fn list_heads(sheet: &mut Sheet, sizes: Sizes, attends: impl Fn(u32) -> bool) {
    let heads = (0..sizes.layers).map(|layer| if attends(layer) { sizes.heads_kv } else { 0 });
    sheet.list("attention.head_count_kv", heads);
}

/// Layers 5, 15, 25 and 35 attend, without positions; embeddings, sums and logits are scaled.
fn granite_h_micro() -> DraftHeader {
    let sizes = Sizes {
        layers: 40,
        context: 131_072,
        vocabulary: 100_352,
        embedding: 2048,
        feed_forward: 8192,
        heads: 32,
        heads_kv: 8,
        head: 64,
    };
    let state = State { kernel: 4, inner: 4096, state: 128, heads: 64, groups: 1 };
    let attends = |layer: u32| layer % 10 == 5;
    let mut sheet = Sheet::decoder("granitehybrid", "granite-h-micro", sizes, None);
    list_heads(&mut sheet, sizes, attends);
    sheet.key("rope.scaling.finetuned", false);
    for (key, value) in [
        ("embedding_scale", 12_f32),
        ("residual_scale", 0.22),
        ("logit_scale", 8.0),
        ("attention.scale", 0.015_625),
    ] {
        sheet.key(key, value);
    }
    keys(&mut sheet, state);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        if attends(layer) {
            sheet.attention(sizes, 1);
        } else {
            mamba2_layer(&mut sheet, sizes.embedding, state);
        }
        sheet.norm("ffn_norm", sizes.embedding);
        sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    }
    sheet.draft
}

/// Layers 7 and 21 attend, without positions.
fn jamba() -> DraftHeader {
    let sizes = Sizes {
        layers: 28,
        context: 262_144,
        vocabulary: 65_536,
        embedding: 2560,
        feed_forward: 8192,
        heads: 20,
        heads_kv: 1,
        head: 128,
    };
    jamba_sheet("jamba-3b", sizes, 160, |layer| layer % 14 == 7, 0).draft
}

/// Every eighth layer attends, every second one has experts.
fn jamba_mini() -> DraftHeader {
    const EXPERTS: u32 = 16;
    let sizes = Sizes {
        layers: 32,
        context: 262_144,
        vocabulary: 65_536,
        embedding: 4096,
        feed_forward: 14_336,
        heads: 32,
        heads_kv: 8,
        head: 128,
    };
    let mut sheet = jamba_sheet("jamba-mini", sizes, 256, |layer| layer % 8 == 4, EXPERTS);
    sheet.key("expert_count", EXPERTS);
    sheet.key("expert_used_count", 2_u32);
    sheet.draft
}

fn jamba_sheet(name: &str, sizes: Sizes, rank: u32, attends: fn(u32) -> bool, experts: u32) -> Sheet {
    let state = State { kernel: 4, inner: 2 * sizes.embedding, state: 16, heads: rank, groups: 0 };
    let mut sheet = Sheet::decoder("jamba", name, sizes, None);
    list_heads(&mut sheet, sizes, attends);
    keys(&mut sheet, state);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        if attends(layer) {
            sheet.attention(sizes, 1);
        } else {
            mamba_layer(&mut sheet, sizes.embedding, state, rank);
            sheet.norm("ssm_dt_norm", rank);
            sheet.norm("ssm_b_norm", state.state);
            sheet.norm("ssm_c_norm", state.state);
        }
        sheet.norm("ffn_norm", sizes.embedding);
        if experts > 0 && layer % 2 == 1 {
            sheet.experts(sizes.embedding, sizes.feed_forward, experts);
        } else {
            sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
        }
    }
    sheet
}

/// What each layer is: M, a feed-forward (-) or attention (*).
const NANO_9B: &str = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-";
/// The same with experts (E).
const NANO_30B: &str = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";

fn nemotron(name: &str, architecture: &'static str, pattern: &str, sizes: Sizes) -> Sheet {
    let none = Sizes { feed_forward: 0, ..sizes };
    let mut sheet = Sheet::decoder(architecture, name, none, Some(SPARED));
    let kinds: Vec<char> = pattern.chars().collect();
    let stated = |of: &[char], value| {
        let stated = kinds.iter().map(|kind| if of.contains(kind) { value } else { 0 });
        stated.collect::<Vec<u32>>()
    };
    sheet.list("attention.head_count_kv", stated(&['*'], sizes.heads_kv));
    sheet.list("feed_forward_length", stated(&['-', 'E'], sizes.feed_forward));
    sheet.key("attention.layer_norm_epsilon", 1e-5_f32);
    sheet
}

fn nemotron_h() -> DraftHeader {
    let sizes = Sizes {
        layers: 56,
        context: 131_072,
        vocabulary: 131_072,
        embedding: 4480,
        feed_forward: 15_680,
        heads: 40,
        heads_kv: 8,
        head: 128,
    };
    let state = State { kernel: 4, inner: 10_240, state: 128, heads: 128, groups: 8 };
    let mut sheet = nemotron("nemotron-h-9b", "nemotron_h", NANO_9B, sizes);
    keys(&mut sheet, state);
    for (layer, kind) in (0..).zip(NANO_9B.chars()) {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        match kind {
            'M' => mamba2_layer(&mut sheet, sizes.embedding, state),
            '*' => sheet.attention(sizes, 1),
            _ => {
                sheet.tensor("ffn_up.weight", MOST, &[sizes.embedding, sizes.feed_forward]);
                sheet.tensor("ffn_down.weight", SPARED, &[sizes.feed_forward, sizes.embedding]);
            }
        }
    }
    sheet.draft
}

fn nemotron_h_moe() -> DraftHeader {
    const EXPERTS: u32 = 128;
    const SHARED: u32 = 3712;
    let sizes = Sizes {
        layers: 52,
        context: 1_048_576,
        vocabulary: 131_072,
        embedding: 2688,
        feed_forward: 1856,
        heads: 32,
        heads_kv: 2,
        head: 128,
    };
    let state = State { kernel: 4, inner: 4096, state: 128, heads: 64, groups: 8 };
    let mut sheet = nemotron("nemotron-h-30b", "nemotron_h_moe", NANO_30B, sizes);
    keys(&mut sheet, state);
    sheet.expert_keys(EXPERTS, 6, sizes.feed_forward);
    sheet.key("expert_shared_feed_forward_length", SHARED);
    sheet.key("expert_shared_count", 1_u32);
    sheet.key("expert_weights_norm", true);
    sheet.key("expert_weights_scale", 2.5_f32);
    for (layer, kind) in (0..).zip(NANO_30B.chars()) {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        match kind {
            'M' => mamba2_layer(&mut sheet, sizes.embedding, state),
            '*' => sheet.attention(sizes, 1),
            _ => {
                let (embedding, width) = (sizes.embedding, sizes.feed_forward);
                sheet.tensor("ffn_gate_inp.weight", F32, &[embedding, EXPERTS]);
                sheet.tensor("exp_probs_b.bias", F32, &[EXPERTS]);
                sheet.tensor("ffn_up_exps.weight", MOST, &[embedding, width, EXPERTS]);
                sheet.tensor("ffn_down_exps.weight", SPARED, &[width, embedding, EXPERTS]);
                sheet.tensor("ffn_up_shexp.weight", MOST, &[embedding, SHARED]);
                sheet.tensor("ffn_down_shexp.weight", SPARED, &[SHARED, embedding]);
            }
        }
    }
    sheet.draft
}

fn falcon_h1() -> DraftHeader {
    let sizes = Sizes {
        layers: 24,
        context: 131_072,
        vocabulary: 65_537,
        embedding: 2048,
        feed_forward: 4096,
        heads: 8,
        heads_kv: 2,
        head: 128,
    };
    let state = State { kernel: 4, inner: 3072, state: 256, heads: 48, groups: 1 };
    let mut sheet = Sheet::decoder("falcon-h1", "falcon-h1-1b", sizes, Some(SPARED));
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    keys(&mut sheet, state);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        mamba2_layer(&mut sheet, sizes.embedding, state);
        sheet.attention(sizes, 1);
        // The engine asks for this one without the usual ending.
        sheet.tensor("ffn_norm", F32, &[sizes.embedding]);
        sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    }
    sheet.draft
}

/// Attention with norms over heads, or a convolution over three tokens.
fn lfm2_mixer(sheet: &mut Sheet, sizes: Sizes, attends: bool) {
    const KERNEL: u32 = 3;
    let embedding = sizes.embedding;
    sheet.norm("attn_norm", embedding);
    if attends {
        sheet.attention(sizes, 1);
        sheet.head_norms(sizes.head);
    } else {
        sheet.tensor("shortconv.conv.weight", F32, &[KERNEL, embedding]);
        sheet.tensor("shortconv.in_proj.weight", MOST, &[embedding, 3 * embedding]);
        sheet.tensor("shortconv.out_proj.weight", MOST, &[embedding, embedding]);
    }
    sheet.norm("ffn_norm", embedding);
}

fn lfm2_sheet(architecture: &'static str, name: &str, sizes: Sizes, attending: &[u32]) -> Sheet {
    let mut sheet = Sheet::decoder(architecture, name, sizes, None);
    list_heads(&mut sheet, sizes, |layer| attending.contains(&layer));
    sheet.key("shortconv.l_cache", 3_u32);
    // The last norm goes by another name in this family.
    for tensor in &mut sheet.draft.tensors {
        if tensor.name == "output_norm.weight" {
            "token_embd_norm.weight".clone_into(&mut tensor.name);
        }
    }
    sheet
}

fn lfm2() -> DraftHeader {
    const ATTENDING: &[u32] = &[2, 5, 8, 10, 12, 14];
    let sizes = Sizes {
        layers: 16,
        context: 128_000,
        vocabulary: 65_536,
        embedding: 2048,
        feed_forward: 8192,
        heads: 32,
        heads_kv: 8,
        head: 64,
    };
    let mut sheet = lfm2_sheet("lfm2", "lfm2-1b", sizes, ATTENDING);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        lfm2_mixer(&mut sheet, sizes, ATTENDING.contains(&layer));
        sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    }
    sheet.draft
}

fn lfm2_moe() -> DraftHeader {
    const ATTENDING: &[u32] = &[2, 6, 10, 14, 18, 21];
    const EXPERTS: u32 = 32;
    const WIDTH: u32 = 1792;
    /// `LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID`.
    const SIGMOID: u32 = 2;
    const LEADING: u32 = 2;
    let sizes = Sizes {
        layers: 24,
        context: 128_000,
        vocabulary: 65_536,
        embedding: 2048,
        feed_forward: 7168,
        heads: 32,
        heads_kv: 8,
        head: 64,
    };
    let mut sheet = lfm2_sheet("lfm2moe", "lfm2-8b", sizes, ATTENDING);
    sheet.expert_keys(EXPERTS, 4, WIDTH);
    sheet.key("expert_gating_func", SIGMOID);
    sheet.key("leading_dense_block_count", LEADING);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        lfm2_mixer(&mut sheet, sizes, ATTENDING.contains(&layer));
        if layer < LEADING {
            sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
        } else {
            sheet.experts(sizes.embedding, WIDTH, EXPERTS);
            sheet.tensor("exp_probs_b.bias", F32, &[EXPERTS]);
        }
    }
    sheet.draft
}

/// Every fourth layer attends, with gated queries.
fn qwen35_sheet(architecture: &'static str, name: &str, sizes: Sizes, state: State) -> Sheet {
    let mut sheet = Sheet::decoder(architecture, name, sizes, Some(SPARED));
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    let sections = vec![11, 11, 10, 0];
    sheet.key("rope.dimension_sections", Datum::Numbers(ValueType::U32, sections));
    keys(&mut sheet, state);
    sheet
}

fn qwen35_mixer(sheet: &mut Sheet, sizes: Sizes, state: State, layer: u32) {
    let embedding = sizes.embedding;
    sheet.norm("attn_norm", embedding);
    sheet.norm("post_attention_norm", embedding);
    if layer % 4 == 3 {
        sheet.attention(sizes, 2);
        sheet.head_norms(sizes.head);
    } else {
        delta_net(sheet, embedding, state);
        sheet.tensor("ssm_beta.weight", Q8_0, &[embedding, state.heads]);
        sheet.tensor("ssm_alpha.weight", Q8_0, &[embedding, state.heads]);
    }
}

const QWEN35_STATE: State = State { kernel: 4, inner: 4096, state: 128, heads: 32, groups: 16 };

/// The layer after the trunk, which attends and predicts the token after next; it shares the trunk's
/// vocabulary.
pub(super) fn prediction_layer(sheet: &mut Sheet, sizes: Sizes) {
    let embedding = sizes.embedding;
    sheet.layer(sizes.layers);
    sheet.norm("attn_norm", embedding);
    sheet.norm("post_attention_norm", embedding);
    sheet.attention(sizes, 2);
    sheet.head_norms(sizes.head);
    sheet.tensor("nextn.eh_proj.weight", MOST, &[2 * embedding, embedding]);
    for norm in ["nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"] {
        sheet.norm(norm, embedding);
    }
}

fn qwen36_mtp() -> DraftHeader {
    let sizes = Sizes {
        layers: 64,
        context: 262_144,
        vocabulary: 248_320,
        embedding: 5120,
        feed_forward: 17_408,
        heads: 24,
        heads_kv: 4,
        head: 256,
    };
    let state = State { kernel: 4, inner: 6144, state: 128, heads: 48, groups: 16 };
    let all = Sizes { layers: sizes.layers + 1, ..sizes };
    let mut sheet = qwen35_sheet("qwen35", "qwen36-27b-mtp", all, state);
    sheet.key("nextn_predict_layers", 1_u32);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        qwen35_mixer(&mut sheet, sizes, state, layer);
        sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    }
    prediction_layer(&mut sheet, sizes);
    sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    sheet.draft
}

fn qwen35() -> DraftHeader {
    let sizes = Sizes {
        layers: 32,
        context: 262_144,
        vocabulary: 248_320,
        embedding: 4096,
        feed_forward: 12_288,
        heads: 16,
        heads_kv: 4,
        head: 256,
    };
    let mut sheet = qwen35_sheet("qwen35", "qwen35-9b", sizes, QWEN35_STATE);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        qwen35_mixer(&mut sheet, sizes, QWEN35_STATE, layer);
        sheet.feed_forward(sizes.embedding, sizes.feed_forward, "");
    }
    sheet.draft
}

fn qwen35_moe() -> DraftHeader {
    qwen35_moe_sheet("qwen35-35b", false)
}

fn qwen35_moe_mtp() -> DraftHeader {
    qwen35_moe_sheet("qwen35-35b-mtp", true)
}

fn qwen35_moe_sheet(name: &str, predicts: bool) -> DraftHeader {
    const EXPERTS: u32 = 256;
    const WIDTH: u32 = 512;
    let sizes = Sizes {
        layers: 40,
        context: 262_144,
        vocabulary: 248_320,
        embedding: 2048,
        feed_forward: WIDTH,
        heads: 16,
        heads_kv: 2,
        head: 256,
    };
    let all = Sizes { layers: sizes.layers + u32::from(predicts), ..sizes };
    let mut sheet = qwen35_sheet("qwen35moe", name, all, QWEN35_STATE);
    if predicts {
        sheet.key("nextn_predict_layers", 1_u32);
    }
    sheet.expert_keys(EXPERTS, 8, WIDTH);
    sheet.key("expert_shared_feed_forward_length", WIDTH);
    for layer in 0..all.layers {
        if layer < sizes.layers {
            sheet.layer(layer);
            qwen35_mixer(&mut sheet, sizes, QWEN35_STATE, layer);
        } else {
            prediction_layer(&mut sheet, sizes);
        }
        sheet.experts(sizes.embedding, WIDTH, EXPERTS);
        sheet.tensor("ffn_gate_inp_shexp.weight", F32, &[sizes.embedding]);
        sheet.feed_forward(sizes.embedding, WIDTH, "_shexp");
    }
    sheet.draft
}
