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
mod feed_forward;
mod form;
mod graph;
mod inputs;
mod latent;
mod mirrored;
mod recurrent;
mod schedule;
mod sketch;

use decoder::{Decoder, Habits};
pub(super) use mirrored::is_mirrored;
use schedule::Machine;
pub(super) use sketch::Sketch;

use super::kv::CacheKind;
use super::request::{EngineKind, PlanRequest};
use super::reserve::Reserve;
use crate::bytes::Bytes;
use crate::explain::Source;

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
    flash: bool,
) -> Compute {
    let ik = request.engine.kind == EngineKind::IkLlamaCpp;
    let habits = Habits {
        copies_cache: request.engine.reserves_cache_copy(),
        mixes_embeddings: request.engine.mixes_embeddings(),
        casts_mask: request.engine.casts_mask(),
        picks_rows_early: request.engine.picks_rows_early(),
        is_lean: ik,
        fuses_experts: request.engine.fuses_experts(request.wish),
        shares_batch: ik,
    };
    let machine = Machine {
        devices: sketch.devices,
        copies: sketch.copies,
        op_offload: request.wish.op_offload,
    };
    let mut decoder = Decoder::new(sketch, reserve, cache, flash, habits);
    if decoder.has_delta_nets() {
        let small = reserve.probing_fusion();
        decoder.fused = fuses(Decoder::new(sketch, &small, cache, flash, habits), machine);
    }
    decoder.build();
    let mut peaks = schedule::reserve(&mut decoder.graph, machine);
    let host = peaks.pop().unwrap_or_default();
    Compute {
        devices: peaks.into_iter().map(Bytes::new).collect(),
        host: Bytes::new(host),
    }
}

/// Does every layer's device run the kernel of the gated delta net for itself? A small graph is placed to find out;
/// where the scheduler moves one of its uses elsewhere, none is fused (`llama-context.cpp: resolve_fused_ops @ b10605`).
fn fuses(mut probe: Decoder<'_>, machine: Machine) -> bool {
    probe.build();
    let places = schedule::assign(&probe.graph, machine);
    let mut uses = probe.fused_nodes.iter();
    uses.all(|(id, place)| places[id.index()] == *place)
}
