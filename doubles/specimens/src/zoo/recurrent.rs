//! Synthetic model headers (specimens) of decoders in which all or most layers have a recurrent state of
//! fixed size.

use plimsoll_model::gguf::DraftHeader;
use plimsoll_model::types::{F32, Q8_0};

use super::hybrids::prediction_layer;
use super::{MOST, SPARED, Sheet, Sizes, Specimen};

#[rustfmt::skip]
pub(super) const ROWS: &[Specimen] = &[
    Specimen("qwen3-next", "Qwen3 Next 80B-A3B, Q4_K_M, gated delta net in three layers of four", Some(79_674), qwen3_next),
    Specimen("qwen3-next-mtp", "Qwen3 Next 80B-A3B, Q4_K_M, the same with a layer that predicts", Some(81_300), qwen3_next_mtp),
    Specimen("mamba2", "Mamba 2 2.7B, Q4_K_M, no attention at all", Some(2702), mamba2),
    Specimen("granite-h-tiny", "Granite 4.0 H Tiny, Q4_K_M, Mamba with four layers of attention", Some(6939), granite_h_tiny),
    Specimen("mamba-3b", "Mamba 2.8B, Q4_K_M, no attention at all", Some(2768), mamba),
    Specimen("falcon-mamba-7b", "FalconMamba 7B, Q4_K_M, the same with norms within its layers", Some(7006), falcon_mamba),
];

/// Sizes of the recurrent layers, in the words of the keys.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) kernel: u32,
    pub(super) inner: u32,
    pub(super) state: u32,
    /// Of Mamba 2 and the delta net; Mamba's `time_step_rank` is its own.
    pub(super) heads: u32,
    pub(super) groups: u32,
}

pub(super) fn keys(sheet: &mut Sheet, state: State) {
    for (key, value) in [
        ("ssm.conv_kernel", state.kernel),
        ("ssm.inner_size", state.inner),
        ("ssm.state_size", state.state),
        ("ssm.time_step_rank", state.heads),
        ("ssm.group_count", state.groups),
    ] {
        sheet.key(key, value);
    }
}

/// A layer of Mamba 2.
pub(super) fn mamba2_layer(sheet: &mut Sheet, embedding: u32, state: State) {
    let convolved = state.inner + 2 * state.groups * state.state;
    let into = state.inner + convolved + state.heads;
    sheet.tensor("ssm_in.weight", MOST, &[embedding, into]);
    sheet.tensor("ssm_conv1d.weight", F32, &[state.kernel, convolved]);
    sheet.tensor("ssm_conv1d.bias", F32, &[convolved]);
    sheet.tensor("ssm_dt.bias", F32, &[state.heads]);
    sheet.tensor("ssm_a", F32, &[1, state.heads]);
    sheet.tensor("ssm_d", F32, &[1, state.heads]);
    sheet.tensor("ssm_norm.weight", F32, &[state.inner / state.groups, state.groups]);
    sheet.tensor("ssm_out.weight", MOST, &[state.inner, embedding]);
}

fn mamba2() -> DraftHeader {
    let sizes = Sizes {
        layers: 64,
        context: 1_048_576,
        vocabulary: 50_288,
        embedding: 2560,
        feed_forward: 0,
        heads: 0,
        heads_kv: 0,
        head: 0,
    };
    let state = State { kernel: 4, inner: 5120, state: 128, heads: 80, groups: 1 };
    let mut sheet = Sheet::decoder("mamba2", "mamba2", sizes, None);
    keys(&mut sheet, state);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        mamba2_layer(&mut sheet, sizes.embedding, state);
    }
    sheet.draft
}

/// Layers 5, 15, 25 and 35 attend.
fn granite_h_tiny() -> DraftHeader {
    const EXPERTS: u32 = 64;
    const SHARED: u32 = 1024;
    let sizes = Sizes {
        layers: 40,
        context: 131_072,
        vocabulary: 100_352,
        embedding: 1536,
        feed_forward: 512,
        heads: 12,
        heads_kv: 4,
        head: 128,
    };
    let state = State { kernel: 4, inner: 3072, state: 128, heads: 48, groups: 1 };
    let attends = |layer: u32| layer % 10 == 5;
    let mut sheet = Sheet::decoder("granitehybrid", "granite-h-tiny", sizes, None);
    let heads = (0..sizes.layers).map(|layer| if attends(layer) { sizes.heads_kv } else { 0 });
    sheet.list("attention.head_count_kv", heads);
    sheet.expert_keys(EXPERTS, 6, sizes.feed_forward);
    sheet.key("expert_shared_feed_forward_length", SHARED);
    sheet.key("rope.scaling.finetuned", false);
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
        sheet.experts(sizes.embedding, sizes.feed_forward, EXPERTS);
        sheet.feed_forward(sizes.embedding, SHARED, "_shexp");
    }
    sheet.draft
}

/// Every fourth layer attends, with gated queries; the others are gated delta nets.
fn qwen3_next() -> DraftHeader {
    qwen3_next_sheet("qwen3-next", false)
}

fn qwen3_next_mtp() -> DraftHeader {
    qwen3_next_sheet("qwen3-next-mtp", true)
}

fn qwen3_next_sheet(name: &str, predicts: bool) -> DraftHeader {
    const EXPERTS: u32 = 512;
    const WIDTH: u32 = 512;
    let sizes = Sizes {
        layers: 48,
        context: 262_144,
        vocabulary: 151_936,
        embedding: 2048,
        feed_forward: 5120,
        heads: 16,
        heads_kv: 2,
        head: 256,
    };
    let state = State { kernel: 4, inner: 4096, state: 128, heads: 32, groups: 16 };
    let all = Sizes { layers: sizes.layers + u32::from(predicts), ..sizes };
    let mut sheet = Sheet::decoder("qwen3next", name, all, Some(SPARED));
    let embedding = sizes.embedding;
    sheet.key("attention.head_count_kv", sizes.heads_kv);
    sheet.expert_keys(EXPERTS, 10, WIDTH);
    sheet.key("expert_shared_feed_forward_length", WIDTH);
    keys(&mut sheet, state);
    if predicts {
        sheet.key("nextn_predict_layers", 1_u32);
    }
    for layer in 0..all.layers {
        if layer < sizes.layers {
            next_mixer(&mut sheet, sizes, state, layer);
        } else {
            prediction_layer(&mut sheet, sizes);
        }
        sheet.experts(embedding, WIDTH, EXPERTS);
        sheet.tensor("ffn_gate_inp_shexp.weight", F32, &[embedding]);
        sheet.feed_forward(embedding, WIDTH, "_shexp");
    }
    sheet.draft
}

fn next_mixer(sheet: &mut Sheet, sizes: Sizes, state: State, layer: u32) {
    let embedding = sizes.embedding;
    sheet.layer(layer);
    sheet.norm("attn_norm", embedding);
    sheet.norm("post_attention_norm", embedding);
    if layer % 4 == 3 {
        sheet.attention(sizes, 2);
        sheet.head_norms(sizes.head);
    } else {
        delta_net(sheet, embedding, state);
        sheet.tensor("ssm_ba.weight", Q8_0, &[embedding, 2 * state.heads]);
    }
}

/// What gated delta nets of all versions have, but for the way to their gates.
pub(super) fn delta_net(sheet: &mut Sheet, embedding: u32, state: State) {
    let (key, value) = (state.state * state.groups, state.state * state.heads);
    sheet.tensor("attn_qkv.weight", MOST, &[embedding, 2 * key + value]);
    sheet.tensor("attn_gate.weight", MOST, &[embedding, value]);
    sheet.tensor("ssm_conv1d.weight", F32, &[state.kernel, 2 * key + value]);
    sheet.tensor("ssm_dt.bias", F32, &[state.heads]);
    sheet.tensor("ssm_a", F32, &[state.heads]);
    sheet.tensor("ssm_norm.weight", F32, &[state.state]);
    sheet.tensor("ssm_out.weight", MOST, &[value, embedding]);
}

/// A layer of Mamba, the first one: the steps come from a matrix of rank `rank`.
pub(super) fn mamba_layer(sheet: &mut Sheet, embedding: u32, state: State, rank: u32) {
    sheet.tensor("ssm_in.weight", MOST, &[embedding, 2 * state.inner]);
    sheet.tensor("ssm_conv1d.weight", F32, &[state.kernel, state.inner]);
    sheet.tensor("ssm_conv1d.bias", F32, &[state.inner]);
    sheet.tensor("ssm_x.weight", MOST, &[state.inner, rank + 2 * state.state]);
    sheet.tensor("ssm_dt.weight", F32, &[rank, state.inner]);
    sheet.tensor("ssm_dt.bias", F32, &[state.inner]);
    sheet.tensor("ssm_a", F32, &[state.state, state.inner]);
    sheet.tensor("ssm_d", F32, &[state.inner]);
    sheet.tensor("ssm_out.weight", MOST, &[state.inner, embedding]);
}

fn mamba() -> DraftHeader {
    const RANK: u32 = 160;
    let sizes = Sizes {
        layers: 64,
        context: 1_048_576,
        vocabulary: 50_280,
        embedding: 2560,
        feed_forward: 0,
        heads: 0,
        heads_kv: 0,
        head: 0,
    };
    mamba_sheet("mamba-3b", sizes, RANK).draft
}

/// Mamba with norms that have no weight.
fn falcon_mamba() -> DraftHeader {
    const RANK: u32 = 256;
    let sizes = Sizes {
        layers: 64,
        context: 1_048_576,
        vocabulary: 65_024,
        embedding: 4096,
        feed_forward: 0,
        heads: 0,
        heads_kv: 0,
        head: 0,
    };
    let mut sheet = mamba_sheet("falcon-mamba-7b", sizes, RANK);
    sheet.key("ssm.dt_b_c_rms", true);
    sheet.draft
}

fn mamba_sheet(name: &str, sizes: Sizes, rank: u32) -> Sheet {
    let state = State { kernel: 4, inner: 2 * sizes.embedding, state: 16, heads: rank, groups: 0 };
    let mut sheet = Sheet::decoder("mamba", name, sizes, None);
    keys(&mut sheet, state);
    for layer in 0..sizes.layers {
        sheet.layer(layer);
        sheet.norm("attn_norm", sizes.embedding);
        mamba_layer(&mut sheet, sizes.embedding, state, rank);
    }
    sheet
}
