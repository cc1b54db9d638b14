//! Where the compute term is the engine's own number, and where it is an estimate.
//!
//! An architecture is listed once its numbers agreed with what the engine said on every row that was recorded of it
//! (`data/measured`, `data/exact`). What no row has seen, a build or a variant of file, stays an estimate, and the plan
//! says so and offers `--exact`.

use plimsoll_model::Model;

use crate::flash::Flash;
use crate::kv::CacheKind;
use crate::request::{Engine, EngineKind};

const ATTENDING: &[&str] = &[
    "llama",
    "mistral3",
    "qwen2",
    "qwen3",
    "qwen3moe",
    "gemma",
    "gemma2",
    "gemma3",
    "gpt-oss",
    "deepseek2",
    "internlm2",
    "smollm3",
    "ernie4_5",
    "hunyuan-dense",
    "phi3",
    "command-r",
    "glm4moe",
    "gemma3n",
    "bert",
    "nomic-bert",
    "gemma-embedding",
    "modern-bert",
];

/// Those with layers that carry a state.
const RECURRENT: &[&str] = &[
    "mamba",
    "mamba2",
    "jamba",
    "granitehybrid",
    "nemotron_h",
    "nemotron_h_moe",
    "falcon-h1",
    "lfm2",
    "lfm2moe",
    "qwen3next",
    "qwen35",
    "qwen35moe",
];

/// Graphs of recurrent layers were compared with these builds; somewhere between them they changed.
const RECURRENT_AT: u32 = 8_799;
const RECURRENT_FROM: u32 = 10_605;

/// Attention that a card has no kernel for, and a quantised cache of latent vectors, were compared from this build on.
const RARER_FROM: u32 = 10_605;

/// True where the compute term is the engine's own number rather than an estimate.
pub(crate) fn is_mirrored(model: &Model, engine: Engine, cache: CacheKind, flash: Flash) -> bool {
    let name = model.architecture.as_str();
    // prediction layers of a model without states that draft: their context keeps more than theirs
    let predicts = model.hyper.nextn_layers > 0 && cache.rollback > 0;
    let known = ATTENDING.contains(&name) && !predicts
        || RECURRENT.contains(&name) && recurrent_is_mirrored(model, engine, cache);
    let latent = model.hyper.mla.is_some() && cache.key.quantised();
    let on_host = flash.on && flash.missing.is_some();
    let compared = engine.build.is_none_or(|build| build >= RARER_FROM) || !(on_host || latent);
    engine.kind == EngineKind::LlamaCpp && known && compared
}

/// Not with states to roll back to, with windows beside states (LFM2), nor for the tensors that early files of
/// Qwen3-Next and large ones of Nemotron 3 have.
fn recurrent_is_mirrored(model: &Model, engine: Engine, cache: CacheKind) -> bool {
    let ends = |role: &str| model.tensors.iter().any(|tensor| tensor.name.ends_with(role));
    let other = ends(".ssm_ba.weight") && ends(".ssm_in.weight") || ends(".ffn_latent_down.weight");
    let build = engine
        .build
        .is_none_or(|build| build == RECURRENT_AT || build >= RECURRENT_FROM);
    build && cache.rollback == 0 && model.hyper.sliding.is_none() && !other
}
