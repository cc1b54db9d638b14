//! Headers of the public models that were measured, for tests of plans: names, shapes and types of tensors,
//! without weights.

use plimsoll_model::gguf::{DraftHeader, DraftTensor};
use plimsoll_model::types::{F32, MXFP4, Q4_0, Q4_K, Q6_K, Q8_0};
use plimsoll_model::{Model, TensorType};

use super::zoo::read;

/// A model by the name that `data/measured` calls it.
pub(crate) fn model(name: &str) -> Model {
    match name {
        "l8" => read(&l8()),
        "q30" => read(&q30()),
        "oss" => read(&oss()),
        "m8" => read(&m8()),
        "words" => read(&words()),
        _ => panic!("no shape is called {name}"),
    }
}

/// Keys that all these models have.
pub(crate) struct Keys {
    pub(crate) architecture: &'static str,
    pub(crate) layers: u32,
    pub(crate) context: u32,
    pub(crate) embedding: u32,
    pub(crate) feed_forward: u32,
    pub(crate) heads: u32,
    pub(crate) heads_kv: u32,
    pub(crate) head_length: u32,
    pub(crate) vocabulary: u32,
}

pub(crate) fn draft(keys: &Keys) -> DraftHeader {
    let mut draft = DraftHeader::default();
    let arch = keys.architecture;
    draft.put("general.architecture", arch);
    for (key, value) in [
        ("block_count", keys.layers),
        ("context_length", keys.context),
        ("embedding_length", keys.embedding),
        ("feed_forward_length", keys.feed_forward),
        ("attention.head_count", keys.heads),
        ("attention.head_count_kv", keys.heads_kv),
        ("attention.key_length", keys.head_length),
        ("attention.value_length", keys.head_length),
        ("rope.dimension_count", keys.head_length),
        ("vocab_size", keys.vocabulary),
    ] {
        draft.put(format!("{arch}.{key}"), value);
    }
    draft
}

pub(crate) fn add(draft: &mut DraftHeader, name: &str, kind: TensorType, shape: &[u32]) {
    draft.tensors.push(DraftTensor {
        name: name.to_owned(),
        kind,
        shape: shape.iter().map(|&n| n.into()).collect(),
    });
}

fn add_layer(draft: &mut DraftHeader, layer: u32, name: &str, kind: TensorType, shape: &[u32]) {
    add(draft, &format!("blk.{layer}.{name}"), kind, shape);
}

/// Matrices of a layer of the llama family: types of q, k, v, output and of gate, up, down.
fn llama_layer(
    draft: &mut DraftHeader,
    layer: u32,
    keys: &Keys,
    most: TensorType,
    value_and_down: TensorType,
) {
    let (e, q, kv, ff) =
        (keys.embedding, keys.heads * keys.head_length, keys.heads_kv * keys.head_length, keys.feed_forward);
    for (name, kind, shape) in [
        ("attn_norm.weight", F32, vec![e]),
        ("attn_q.weight", most, vec![e, q]),
        ("attn_k.weight", most, vec![e, kv]),
        ("attn_v.weight", value_and_down, vec![e, kv]),
        ("attn_output.weight", most, vec![q, e]),
        ("ffn_norm.weight", F32, vec![e]),
        ("ffn_gate.weight", most, vec![e, ff]),
        ("ffn_up.weight", most, vec![e, ff]),
        ("ffn_down.weight", value_and_down, vec![ff, e]),
    ] {
        add_layer(draft, layer, name, kind, &shape);
    }
}

fn ends(draft: &mut DraftHeader, keys: &Keys, embedding: TensorType, output: TensorType) {
    add(draft, "token_embd.weight", embedding, &[keys.embedding, keys.vocabulary]);
    add(draft, "output_norm.weight", F32, &[keys.embedding]);
    add(draft, "output.weight", output, &[keys.embedding, keys.vocabulary]);
}

pub(crate) const L8: Keys = Keys {
    architecture: "llama",
    layers: 32,
    context: 131_072,
    embedding: 4096,
    feed_forward: 14_336,
    heads: 32,
    heads_kv: 8,
    head_length: 128,
    vocabulary: 128_256,
};

pub(crate) fn l8() -> DraftHeader {
    let mut draft = draft(&L8);
    ends(&mut draft, &L8, Q4_K, Q6_K);
    for layer in 0..L8.layers {
        llama_layer(&mut draft, layer, &L8, Q4_K, Q6_K);
    }
    draft
}

fn m8() -> DraftHeader {
    let keys = Keys { layers: 8, vocabulary: 32_000, ..L8 };
    let mut draft = draft(&keys);
    ends(&mut draft, &keys, Q4_0, Q4_0);
    for layer in 0..keys.layers {
        llama_layer(&mut draft, layer, &keys, Q4_0, Q4_0);
    }
    draft
}

fn words() -> DraftHeader {
    let keys = Keys {
        layers: 2,
        context: 4096,
        embedding: 64,
        feed_forward: 128,
        heads: 4,
        heads_kv: 2,
        head_length: 16,
        vocabulary: 562,
        ..L8
    };
    plain_llama(&keys)
}

/// A llama all in F32.
pub(crate) fn plain_llama(keys: &Keys) -> DraftHeader {
    let mut draft = draft(keys);
    ends(&mut draft, keys, F32, F32);
    for layer in 0..keys.layers {
        llama_layer(&mut draft, layer, keys, F32, F32);
    }
    draft
}

pub(crate) fn q30() -> DraftHeader {
    let keys = Keys {
        architecture: "qwen3moe",
        layers: 48,
        context: 131_072,
        embedding: 2048,
        feed_forward: 6144,
        heads: 32,
        heads_kv: 4,
        head_length: 128,
        vocabulary: 151_936,
    };
    let (experts, width) = (128, 768);
    let mut draft = draft(&keys);
    for (key, value) in
        [("expert_count", experts), ("expert_used_count", 8), ("expert_feed_forward_length", width)]
    {
        draft.put(format!("qwen3moe.{key}"), value);
    }
    ends(&mut draft, &keys, Q8_0, Q8_0);
    let e = keys.embedding;
    for layer in 0..keys.layers {
        for (name, kind, shape) in [
            ("attn_norm.weight", F32, vec![e]),
            ("attn_q.weight", Q8_0, vec![e, 4096]),
            ("attn_k.weight", Q8_0, vec![e, 512]),
            ("attn_v.weight", Q8_0, vec![e, 512]),
            ("attn_output.weight", Q8_0, vec![4096, e]),
            ("attn_q_norm.weight", F32, vec![128]),
            ("attn_k_norm.weight", F32, vec![128]),
            ("ffn_norm.weight", F32, vec![e]),
            ("ffn_gate_inp.weight", F32, vec![e, experts]),
            ("ffn_gate_exps.weight", Q8_0, vec![e, width, experts]),
            ("ffn_down_exps.weight", Q8_0, vec![width, e, experts]),
            ("ffn_up_exps.weight", Q8_0, vec![e, width, experts]),
        ] {
            add_layer(&mut draft, layer, name, kind, &shape);
        }
    }
    draft
}

fn oss() -> DraftHeader {
    let keys = Keys {
        architecture: "gpt-oss",
        layers: 24,
        context: 131_072,
        embedding: 2880,
        feed_forward: 2880,
        heads: 64,
        heads_kv: 8,
        head_length: 64,
        vocabulary: 201_088,
    };
    let (experts, e) = (32, keys.embedding);
    let mut draft = draft(&keys);
    for (key, value) in [
        ("expert_count", experts),
        ("expert_used_count", 4),
        ("expert_feed_forward_length", e),
        ("attention.sliding_window", 128),
    ] {
        draft.put(format!("gpt-oss.{key}"), value);
    }
    ends(&mut draft, &keys, Q8_0, Q8_0);
    for layer in 0..keys.layers {
        for (name, kind, shape) in [
            ("attn_norm.weight", F32, vec![e]),
            ("post_attention_norm.weight", F32, vec![e]),
            ("attn_q.weight", Q8_0, vec![e, 4096]),
            ("attn_q.bias", F32, vec![4096]),
            ("attn_k.weight", Q8_0, vec![e, 512]),
            ("attn_k.bias", F32, vec![512]),
            ("attn_v.weight", Q8_0, vec![e, 512]),
            ("attn_v.bias", F32, vec![512]),
            ("attn_output.weight", Q8_0, vec![4096, e]),
            ("attn_output.bias", F32, vec![e]),
            ("attn_sinks.weight", F32, vec![64]),
            ("ffn_gate_inp.weight", F32, vec![e, experts]),
            ("ffn_gate_inp.bias", F32, vec![experts]),
            ("ffn_gate_exps.weight", MXFP4, vec![e, e, experts]),
            ("ffn_gate_exps.bias", F32, vec![e, experts]),
            ("ffn_up_exps.weight", MXFP4, vec![e, e, experts]),
            ("ffn_up_exps.bias", F32, vec![e, experts]),
            ("ffn_down_exps.weight", MXFP4, vec![e, e, experts]),
            ("ffn_down_exps.bias", F32, vec![e, experts]),
        ] {
            add_layer(&mut draft, layer, name, kind, &shape);
        }
    }
    draft
}
