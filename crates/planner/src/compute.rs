//! The compute buffer: intermediate results of the largest batch, the logits, the attention mask.
//!
//! It has no closed form: the engine lays its graph out with a best-fit allocator, and the peak depends on the
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

use self::decoder::{Decoder, Habits};
use self::graph::Id;
pub(super) use self::mirrored::is_mirrored;
use self::schedule::Machine;
pub(super) use self::sketch::Sketch;

use plimsoll_base::{Bytes, Source};
use plimsoll_flags::Program;

use super::flash::Flash;
use super::kv::CacheKind;
use super::layout::Place;
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
    sketch: &Sketch<'_>,
    reserve: &Reserve,
    cache: CacheKind,
    flash: Flash,
) -> Compute {
    let (habits, machine) = (habits(request), machine(request, sketch));
    let fused = || {
        let small = reserve.probing(DELTA_NET_PROBE);
        let probe = Decoder::new(sketch, &small, cache, flash, habits);
        stays_at_home(probe, machine, |decoder| &decoder.fused_nodes)
    };
    let fused = !Decoder::has_delta_nets(sketch) || *sketch.fuses.get_or_init(fused);
    let mut decoder = Decoder::new(sketch, reserve, cache, flash, habits);
    decoder.fused = fused;
    decoder.build();
    let mut peaks = schedule::reserve(&mut decoder.graph, machine);
    sketch.hand_back(decoder.graph);
    let host = peaks.pop().unwrap_or_default();
    Compute {
        devices: peaks.into_iter().map(Bytes::new).collect(),
        host: Bytes::new(host),
    }
}

fn habits(request: &PlanRequest<'_>) -> Habits {
    let ik = request.engine.kind == EngineKind::IkLlamaCpp;
    Habits {
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

const fn machine(request: &PlanRequest<'_>, sketch: &Sketch<'_>) -> Machine {
    Machine {
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
    sketch: &Sketch<'_>,
    cache: CacheKind,
    flash: Flash,
) -> bool {
    let reserve = Reserve::of_model(request, u64::from(request.wish.context)).probing(ATTENTION_PROBE);
    let probe = Decoder::new(sketch, &reserve, cache, flash, habits(request));
    stays_at_home(probe, machine(request, sketch), |decoder| {
        &decoder.attention_nodes
    })
}

/// Does every use of a kernel run where its layer is? A small graph is placed to find out; where the scheduler moves one
/// elsewhere, the engine uses none (`llama-context.cpp: resolve_fused_ops @ b10605`).
fn stays_at_home(
    mut probe: Decoder<'_>,
    machine: Machine,
    uses: for<'d> fn(&'d Decoder<'_>) -> &'d [(Id, Place)],
) -> bool {
    probe.build();
    let places = schedule::assign(&probe.graph, machine);
    let stay = uses(&probe)
        .iter()
        .all(|(id, place)| places[id.index()] == *place);
    probe.sketch.hand_back(probe.graph);
    stay
}
