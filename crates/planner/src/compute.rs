//! Computes the size of the compute buffer: intermediate results of the largest batch, logits and the
//! attention mask.
//!
//! The graph of operations is built without data, and its tensors are placed by llama.cpp's rules.

mod allocator;
mod attention;
mod decoder;
mod delta_net;
mod encoder;
mod feed_forward;
mod graph;
mod inputs;
mod latent;
mod model_layers;
mod recurrent;
mod schedule;
mod streams;

use self::decoder::{BIAS, Decoder, WEIGHT};
use self::graph::{F16, F32, I32, I64, Id, OpGraph, OpKind};
use self::model_layers::Layer;
pub(super) use self::model_layers::ModelLayers;
use self::schedule::BackendSet;
use crate::{DeviceBytes, EngineQuirks, PlanRequest, Reserve, TensorDevice};

use plimsoll_base::{Bytes, Source};

pub(super) fn source(compared: bool) -> Source {
    Source::Formula(if compared {
        "ggml-alloc.c:ggml_gallocr_reserve_n @ b10605"
    } else {
        "ggml-alloc.c:ggml_gallocr_reserve_n @ b10605, graph estimated"
    })
}

/// Tokens of each sequence in the small graphs that show which device a kernel would run on
/// (`llama-context.cpp: llm_fused_op_flash_attn_probe, llm_fused_op_gdn_ch_probe @ b10605`).
const ATTENTION_PROBE: u64 = 1;
const DELTA_NET_PROBE: u64 = 16;

pub(super) fn compute(request: &PlanRequest<'_>, layers: &ModelLayers<'_>, reserve: &Reserve) -> DeviceBytes {
    let (quirks, backends) = (EngineQuirks::of(request), backends(request, layers));
    let fused = || {
        let small = reserve.probing(DELTA_NET_PROBE);
        let probe = Decoder::new(layers, &small, quirks);
        runs_at_home(probe, backends, false)
    };
    // No context changes the answer, so the search over contexts asks for it once.
    let fused = !Decoder::has_delta_nets(layers) || *layers.fuses.get_or_init(fused);
    // The prompt graph decides: the graph of one token needs less of everything.
    let mut decoder = Decoder::new(layers, reserve, quirks);
    decoder.fused = fused;
    decoder.build();
    let mut peaks = schedule::reserve(&mut decoder.graph, backends);
    layers.hand_back(decoder.graph);
    // The last peak is the host's.
    let host = Bytes::new(peaks.pop().unwrap_or_default());
    let cards = peaks.into_iter().map(Bytes::new).collect();
    DeviceBytes { cards, host }
}

const fn backends(request: &PlanRequest<'_>, layers: &ModelLayers<'_>) -> BackendSet {
    BackendSet { devices: layers.devices, copies: layers.copies, op_offload: request.params.op_offload }
}

/// True if every layer attends on its own device. With `-fa auto`, flash attention is off where one does not.
pub(super) fn attends_at_home(request: &PlanRequest<'_>, layers: &ModelLayers<'_>) -> bool {
    let reserve = Reserve::of_model(request, u64::from(request.params.context)).probing(ATTENTION_PROBE);
    let probe = Decoder::new(layers, &reserve, EngineQuirks::of(request));
    runs_at_home(probe, backends(request, layers), true)
}

/// Places a small graph and compares the devices of a kernel's uses (attention's, else the delta net's) with
/// those of their layers. The engine drops the kernel for all layers where the scheduler moves one use
/// (`llama-context.cpp: resolve_fused_ops @ b10605`).
fn runs_at_home(mut probe: Decoder<'_>, backends: BackendSet, attention: bool) -> bool {
    // Placement needs no allocation, which is the costly part.
    probe.build();
    let places = schedule::assign(&probe.graph, backends);
    let stays = |(id, place): &(Id, TensorDevice)| places[id.index()] == *place;
    let uses = if attention { &probe.attention_nodes } else { &probe.fused_nodes };
    let stay = uses.iter().all(stays);
    probe.layers.hand_back(probe.graph);
    stay
}
