//! The compute buffer: intermediate results of the largest batch, the logits, the attention mask.
//!
//! It has no closed variant: the engine lays its graph out with a best-fit allocator, and the peak depends on the
//! order of operations. So the graph is built here as far as sizes go, placed on devices, split, and laid out by
//! the same rules, over the few layers that differ. That takes tens of microseconds and gives the engine's own
//! numbers to the byte for the architectures of `mirrored`; others are estimated from the same parts.

mod allocator;
mod attention;
mod decoder;
mod delta_net;
mod encoder;
mod feed_forward;
mod form;
mod graph;
mod inputs;
mod latent;
mod mirrored;
mod recurrent;
mod schedule;
mod sketch;
mod streams;

use self::decoder::{Decoder, EngineQuirks};
use self::graph::TensorId;
pub(super) use self::mirrored::is_mirrored;
use self::schedule::BackendSet;
pub(super) use self::sketch::ModelLayers;

use plimsoll_base::{Bytes, Source};
use plimsoll_flags::Program;

use super::flash::Flash;
use super::kv::CacheKind;
use super::layout::TensorDevice;
use super::request::{EngineKind, PlanRequest};
use super::reserve::Reserve;

/// Compute buffers by place.
#[derive(Clone, Debug)]
pub(super) struct Compute {
    pub(super) devices: Vec<Bytes>,
    pub(super) host: Bytes,
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
    sketch: &ModelLayers<'_>,
    reserve: &Reserve,
    cache: CacheKind,
    flash: Flash,
) -> Compute {
    let (quirks, backends) = (quirks(request), backends(request, sketch));
    let fused = || {
        let small = reserve.probing(DELTA_NET_PROBE);
        let probe = Decoder::new(sketch, &small, cache, flash, quirks);
        stays_at_home(probe, backends, |decoder| &decoder.fused_nodes)
    };
    let fused = !Decoder::has_delta_nets(sketch) || *sketch.fuses.get_or_init(fused);
    let mut decoder = Decoder::new(sketch, reserve, cache, flash, quirks);
    decoder.fused = fused;
    decoder.build();
    let mut peaks = schedule::reserve(&mut decoder.graph, backends);
    sketch.hand_back(decoder.graph);
    let host = peaks.pop().unwrap_or_default();
    Compute {
        devices: peaks.into_iter().map(Bytes::new).collect(),
        host: Bytes::new(host),
    }
}

fn quirks(request: &PlanRequest<'_>) -> EngineQuirks {
    let ik = request.engine.kind == EngineKind::IkLlamaCpp;
    EngineQuirks {
        copies_cache: request.engine.reserves_cache_copy(),
        mixes_embeddings: request.engine.mixes_embeddings(),
        casts_mask: request.engine.casts_mask(),
        picks_rows_early: request.engine.picks_rows_early(),
        pins_norms: request.program != Program::LlamaFitParams,
        clamps_views: request.engine.clamps_views(),
        projects_by_sequence: request.engine.projects_by_sequence(),
        is_lean: ik,
        fuses_experts: request.engine.fuses_experts(request.wish),
        shares_batch: ik,
    }
}

const fn backends(request: &PlanRequest<'_>, sketch: &ModelLayers<'_>) -> BackendSet {
    BackendSet {
        devices: sketch.devices,
        copies: sketch.copies,
        op_offload: request.wish.op_offload,
    }
}

/// Tokens of each sequence in the graphs that are placed to see where kernels would run (`llama-context.cpp:
/// llm_fused_op_flash_attn_probe, llm_fused_op_gdn_ch_probe @ b10605`).
const ATTENTION_PROBE: u64 = 1;
const DELTA_NET_PROBE: u64 = 16;

/// Does every layer attend where it is? With `-fa auto`, flash attention is off where one does not.
pub(super) fn attends_at_home(
    request: &PlanRequest<'_>,
    sketch: &ModelLayers<'_>,
    cache: CacheKind,
    flash: Flash,
) -> bool {
    let reserve = Reserve::of_model(request, u64::from(request.wish.context)).probing(ATTENTION_PROBE);
    let probe = Decoder::new(sketch, &reserve, cache, flash, quirks(request));
    stays_at_home(probe, backends(request, sketch), |decoder| {
        &decoder.attention_nodes
    })
}

/// Does every use of a kernel run where its layer is? A small graph is placed to find out; where the scheduler moves one
/// elsewhere, the engine uses none (`llama-context.cpp: resolve_fused_ops @ b10605`).
fn stays_at_home(
    mut probe: Decoder<'_>,
    backends: BackendSet,
    uses: for<'d> fn(&'d Decoder<'_>) -> &'d [(TensorId, TensorDevice)],
) -> bool {
    probe.build();
    let places = schedule::assign(&probe.graph, backends);
    let stay = uses(&probe)
        .iter()
        .all(|(id, place)| places[id.index()] == *place);
    probe.sketch.hand_back(probe.graph);
    stay
}
