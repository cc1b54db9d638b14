//! What a context takes while it runs, once it has been so deep: its pools, and a compute buffer that grows.

use plimsoll_base::Bytes;

use super::super::pool::{self, PoolInputs};
use super::super::request::PlanRequest;
use super::super::reserve::Reserve;
use super::super::{calibration, compute};
use super::part::EngineContext;

/// The pools of a part's devices at a depth of `cells`, by device and card.
pub(super) fn pools(
    request: &PlanRequest<'_>,
    part: &EngineContext<'_>,
    reserve: &Reserve,
    cells: u64,
) -> Vec<((usize, usize), pool::RunTimePool)> {
    let depth = PoolInputs {
        flash_attention: part.flash.on,
        engine: request.engine.of_pool(),
        key: part.cache.key,
        value: part.cache.value,
        cells,
        latent: part.cache.latent,
        fused: request.engine.fuses_experts(request.wish),
        cublas: Bytes::ZERO,
    };
    let regrown = regrown(request, part, reserve, cells);
    let devices = part.layout.devices.iter().enumerate();
    devices
        .map(|(device, &card)| {
            let weights = part.matrices[device].as_slice();
            let on_card = &request.cards[card];
            let depth = PoolInputs {
                cublas: calibration::cublas(request, on_card),
                ..depth
            };
            let mut pool = pool::pool(
                part.model,
                &part.layout,
                (device, weights),
                on_card,
                reserve,
                depth,
            );
            pool.peak.bytes = pool.peak.bytes.map(|bytes| bytes + regrown[device]);
            ((device, card), pool)
        })
        .collect()
}

/// What each device's compute buffer takes at run time beyond what is reserved for the deepest cache, where a shallower one of those that a run
/// comes by needs more (ik_llama.cpp 8337e4cd: `llama_init_from_model` reserves once, `ggml_gallocr_reserve_n` takes more and keeps it).
fn regrown(request: &PlanRequest<'_>, part: &EngineContext<'_>, reserve: &Reserve, cells: u64) -> Vec<Bytes> {
    let mut most = vec![Bytes::ZERO; part.layout.devices.len()];
    let Some(latent) = part.cache.latent else {
        return most;
    };
    if !latent.restores(part.flash.on, reserve.tokens) {
        return most;
    }
    let compute =
        |reserve: &Reserve| compute::compute(request, &part.sketch, reserve, part.cache, part.flash).devices;
    let borders = latent.borders(part.model.hyper.heads.at(0), cells.saturating_add(1));
    for border in borders {
        let shallower = Reserve {
            context: border,
            per_sequence: border,
            ..*reserve
        };
        for (most, needed) in most.iter_mut().zip(compute(&shallower)) {
            *most = needed.max(*most);
        }
    }
    let reserved = compute(reserve);
    let beyond = most.iter().zip(reserved);
    beyond
        .map(|(needed, reserved)| needed.saturating_sub(reserved))
        .collect()
}

/// Cells that the pool reaches at full depth. A copy of the cache holds every sequence that is worked on at once; without flash
/// attention a micro-batch is shared among them, so that one sequence counts (`llama-graph.cpp: build_attn_mha @ b10605`).
pub(super) fn cells(part: &EngineContext<'_>, reserve: &Reserve, request: &PlanRequest<'_>) -> u64 {
    match part.flash.on && !request.engine.reserves_cache_copy() {
        true => reserve.context,
        false => reserve.per_sequence,
    }
}
