//! The compute buffer: intermediate results of the largest batch, the logits, the attention mask.
//!
//! It has no closed form: the engine lays its graph out with a best-fit allocator, and the peak depends on the
//! order of operations. So the graph is built here as far as sizes go, placed on devices, split, and laid out by
//! the same rules, over the few layers that differ. That takes tens of microseconds and gives the engine's own
//! numbers to the byte for the architectures of [`MIRRORED`]; others are estimated from the same parts.

mod allocator;
mod attention;
mod decoder;
mod feed_forward;
mod graph;
mod latent;
mod schedule;
mod sketch;

use decoder::{Decoder, Habits};
use schedule::Machine;
pub(super) use sketch::Sketch;

use super::flash::Flash;
use super::kv::CacheKind;
use super::request::{Engine, EngineKind, PlanRequest};
use super::reserve::Reserve;
use crate::bytes::Bytes;
use crate::explain::Source;
use crate::model::Model;

/// Compute buffers by place.
#[derive(Clone, Debug)]
pub(super) struct Compute {
    pub(super) devices: Vec<Bytes>,
    pub(super) host: Bytes,
}

/// Architectures whose numbers were compared with the engine's own (`data/measured`).
const MIRRORED: &[&str] = &[
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
];

/// True where the compute term is the engine's own number rather than an estimate. A quantised latent cache, and
/// attention that a card has no kernel for, were seen to differ.
pub(super) fn is_mirrored(model: &Model, engine: Engine, cache: CacheKind, flash: Flash) -> bool {
    let known = MIRRORED.contains(&model.architecture.as_str());
    let latent = model.hyper.mla.is_some() && cache.key.quantised();
    engine.kind == EngineKind::LlamaCpp && known && !latent && !(flash.on && flash.missing.is_some())
}

pub(super) fn source(mirrored: bool) -> Source {
    if mirrored {
        Source::Formula("ggml-alloc.c:ggml_gallocr_reserve_n @ b10605")
    } else {
        Source::Formula("ggml-alloc.c:ggml_gallocr_reserve_n @ b10605, graph estimated")
    }
}

pub(super) fn compute(
    request: &PlanRequest<'_>,
    sketch: &Sketch<'_>,
    reserve: &Reserve,
    cache: CacheKind,
    flash: bool,
) -> Compute {
    let ik = request.engine.kind == EngineKind::IkLlamaCpp;
    let habits = Habits {
        copies_cache: request.engine.reserves_cache_copy(),
        mixes_embeddings: request.engine.mixes_embeddings(),
        fuses_experts: ik && request.wish.fused_experts != Some(false),
        shares_batch: ik,
    };
    let mut graph = Decoder::new(sketch, reserve, cache, flash, habits).build();
    let machine = Machine {
        devices: sketch.devices,
        copies: sketch.copies,
        op_offload: request.wish.op_offload,
    };
    let mut peaks = schedule::reserve(&mut graph, machine);
    let host = peaks.pop().unwrap_or_default();
    Compute {
        devices: peaks.into_iter().map(Bytes::new).collect(),
        host: Bytes::new(host),
    }
}
