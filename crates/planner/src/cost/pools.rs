//! Memory of an engine at a given depth (tokens in use): its memory pools, and the growth of its compute
//! buffer.

use plimsoll_base::Bytes;

use super::engine_context::EngineContext;
use crate::pool::{self, PoolInputs, RunTimePool};
use crate::quirks::EngineQuirks;
use crate::request::PlanRequest;
use crate::reserve::Reserve;
use crate::{calibration, compute};

/// The pools of a context at a depth of `cells`, one for each device, with the card that it is on.
pub(super) fn pools(
    request: &PlanRequest<'_>,
    context: &EngineContext<'_>,
    reserve: &Reserve,
    cells: u64,
) -> Vec<(usize, RunTimePool)> {
    let quirks = EngineQuirks::of(request);
    let regrown = regrown(request, context, reserve, cells);
    let devices = context.layout.devices.iter().enumerate();
    let pool = |(device, &card): (usize, &usize)| {
        let on_card = &request.cards[card];
        let inputs = PoolInputs {
            flash_attention: context.graph.flash.on,
            engine: quirks.pool,
            key: context.graph.cache.key,
            value: context.graph.cache.value,
            cells,
            latent: context.graph.cache.latent,
            fused: quirks.fuses_experts,
            cublas: calibration::cublas(request, on_card),
        };
        let weights = context.matrices[device].as_slice();
        let (model, layout) = (context.model, &context.layout);
        let mut pool = pool::pool(model, layout, (device, weights), on_card, reserve, inputs);
        pool.peak.bytes = pool.peak.bytes.map(|bytes| bytes + regrown[device]);
        (card, pool)
    };
    devices.map(pool).collect()
}

/// Growth of each device's compute buffer at run time beyond the reserved size, where a shallower cache needs more than
/// the deepest (ik_llama.cpp 8337e4cd: `llama_init_from_model` reserves once, `ggml_gallocr_reserve_n` takes more and
/// keeps it).
fn regrown(
    request: &PlanRequest<'_>,
    context: &EngineContext<'_>,
    reserve: &Reserve,
    cells: u64,
) -> Vec<Bytes> {
    let mut most = vec![Bytes::ZERO; context.layout.devices.len()];
    let restores =
        |latent: &crate::latent::LatentAttention| latent.restores(context.graph.flash.on, reserve.tokens);
    let Some(latent) = context.graph.cache.latent.filter(restores) else {
        return most;
    };
    let compute = |reserve: &Reserve| compute::compute(request, &context.graph, reserve).cards;
    // Only borders can exceed the reserved size: between two of them the buffer grows with depth.
    let borders = latent.borders(context.model.hyper.heads.at(0), cells.saturating_add(1));
    for border in borders {
        let shallower = Reserve { context: border, per_sequence: border, ..*reserve };
        for (most, needed) in most.iter_mut().zip(compute(&shallower)) {
            *most = needed.max(*most);
        }
    }
    let beyond = most.iter().zip(compute(reserve));
    beyond.map(|(needed, reserved)| needed.saturating_sub(reserved)).collect()
}

/// Cells that the pool reaches at full depth.
pub(super) fn cells(context: &EngineContext<'_>, reserve: &Reserve, request: &PlanRequest<'_>) -> u64 {
    // A copy of the cache holds all sequences that are worked on at once. Without flash attention they share a
    // micro-batch, so one sequence counts (`llama-graph.cpp: build_attn_mha @ b10605`).
    match context.graph.flash.on && !EngineQuirks::of(request).reserves_cache_copy {
        true => reserve.context,
        false => reserve.per_sequence,
    }
}
