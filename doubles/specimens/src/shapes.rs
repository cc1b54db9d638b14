//! Lists the shapes of synthetic models by name. A shape named after a real model has that model's
//! dimensions.

use plimsoll_model::TensorType;
use plimsoll_model::types::{F32, MXFP4, Q4_0, Q4_K, Q6_K, Q8_0};

use super::{Contents, ExpertSizes, Family, Kinds, Recipe};

/// Name and description of every shape, for help texts.
pub const SHAPES: &[(&str, &str)] = &[
    ("tiny", "chat model of 2 layers that answers in words, F32, real weights"),
    ("tiny-embed", "the same as an embedding model"),
    ("l8", "Llama 3 8B, Q4_K with attn_v, ffn_down and output in Q6_K"),
    ("q30", "Qwen3 30B-A3B, Q8_0"),
    ("oss", "gpt-oss 20B, experts MXFP4, the rest Q8_0"),
    ("m8", "llama of 8 layers, all Q4_0"),
    ("llama-70b", "Llama 3 70B, Q4_K with attn_v, ffn_down and output in Q6_K"),
    ("qwen3-4b", "Qwen3 4B, Q4_K with attn_v and ffn_down in Q6_K, output tied"),
    ("kimi-k2", "Kimi K2, 1 T parameters, MLA, Q4_K"),
    ("cal-dense", "8 layers of Llama 3 8B, Q4_K: the rate of wide matrices, for a calibration of speed"),
    ("cal-deep", "32 narrow layers with a wide cache, Q4_K: the cost of a kernel, and of a cache"),
    ("cal-moe", "12 layers of Qwen3 30B-A3B with 32 experts, Q8_0: the rate of experts, and of sampling"),
];

/// The recipe of a shape; `None` for a name that is not in [`SHAPES`].
pub fn shape(name: &str) -> Option<Recipe> {
    Some(match name {
        "tiny" => tiny(),
        "tiny-embed" => Recipe { name: "tiny-embed", pools: true, seed: 11, ..tiny() },
        "l8" => llama_8b(),
        "q30" => qwen3_30b(),
        "oss" => gpt_oss_20b(),
        "m8" => m8(),
        "llama-70b" => llama_70b(),
        "qwen3-4b" => qwen3_4b(),
        "kimi-k2" => kimi_k2(),
        "cal-dense" => Recipe { name: "cal-dense", layers: 8, vocabulary: 32_000, ..llama_8b() },
        "cal-deep" => cal_deep(),
        "cal-moe" => cal_moe(),
        _ => return None,
    })
}

const fn uniform(kind: TensorType) -> Kinds {
    Kinds { embedding: kind, output: Some(kind), matrix: kind, spared: kind, experts: kind }
}

/// Q4_K as llama.cpp's quantiser makes it, with its more sensitive tensors in Q6_K throughout.
const Q4_K_M: Kinds = Kinds { output: Some(Q6_K), spared: Q6_K, ..uniform(Q4_K) };

/// Heads of 32 elements: one block of a quantised cache.
fn tiny() -> Recipe {
    Recipe {
        name: "tiny",
        family: Family::Llama,
        layers: 2,
        context: 4096,
        vocabulary: 0,
        embedding: 128,
        feed_forward: 256,
        heads: 4,
        heads_kv: 2,
        head_length: 32,
        experts: ExpertSizes::default(),
        kinds: uniform(F32),
        contents: Contents::Words,
        pools: false,
        seed: 7,
    }
}

fn llama_8b() -> Recipe {
    Recipe {
        name: "l8",
        family: Family::Llama,
        layers: 32,
        context: 131_072,
        vocabulary: 128_256,
        embedding: 4096,
        feed_forward: 14_336,
        heads: 32,
        heads_kv: 8,
        head_length: 128,
        experts: ExpertSizes::default(),
        kinds: Q4_K_M,
        contents: Contents::Noise,
        pools: false,
        seed: 1,
    }
}

fn m8() -> Recipe {
    Recipe { name: "m8", layers: 8, vocabulary: 32_000, kinds: uniform(Q4_0), ..llama_8b() }
}

fn llama_70b() -> Recipe {
    Recipe { name: "llama-70b", layers: 80, embedding: 8192, feed_forward: 28_672, heads: 64, ..llama_8b() }
}

fn qwen3_4b() -> Recipe {
    Recipe {
        name: "qwen3-4b",
        family: Family::Qwen3,
        layers: 36,
        context: 40_960,
        vocabulary: 151_936,
        embedding: 2560,
        feed_forward: 9728,
        kinds: Kinds { embedding: Q6_K, output: None, ..Q4_K_M },
        ..llama_8b()
    }
}

fn qwen3_30b() -> Recipe {
    Recipe {
        name: "q30",
        family: Family::Qwen3Moe,
        layers: 48,
        context: 40_960,
        vocabulary: 151_936,
        embedding: 2048,
        feed_forward: 6144,
        heads_kv: 4,
        experts: ExpertSizes { count: 128, used: 8, feed_forward: 768 },
        kinds: uniform(Q8_0),
        ..llama_8b()
    }
}

fn gpt_oss_20b() -> Recipe {
    Recipe {
        name: "oss",
        family: Family::GptOss,
        layers: 24,
        vocabulary: 201_088,
        embedding: 2880,
        feed_forward: 2880,
        heads: 64,
        head_length: 64,
        experts: ExpertSizes { count: 32, used: 4, feed_forward: 2880 },
        kinds: Kinds { experts: MXFP4, ..uniform(Q8_0) },
        ..llama_8b()
    }
}

/// MLA: one KV head as long as the latent vector (512) and its rotary part (64).
fn kimi_k2() -> Recipe {
    Recipe {
        name: "kimi-k2",
        family: Family::DeepSeek2,
        layers: 61,
        vocabulary: 163_840,
        embedding: 7168,
        feed_forward: 18_432,
        heads: 64,
        heads_kv: 1,
        head_length: 576,
        experts: ExpertSizes { count: 384, used: 8, feed_forward: 2048 },
        kinds: uniform(Q4_K),
        ..llama_8b()
    }
}

fn cal_deep() -> Recipe {
    Recipe { name: "cal-deep", embedding: 1024, feed_forward: 2048, vocabulary: 32_000, ..llama_8b() }
}

fn cal_moe() -> Recipe {
    let experts = ExpertSizes { count: 32, ..qwen3_30b().experts };
    Recipe { name: "cal-moe", layers: 12, experts, ..qwen3_30b() }
}
