//! Computes the run-time pool: temporary GPU memory of operations, which the engine leaves out of its own
//! estimate.
//!
//! A pool with virtual memory management needs as much as the largest operation (`ggml-cuda.cu:
//! ggml_cuda_pool_vmm @ b8799, b10605`). ggml's legacy pool also keeps blocks that became too small.

mod attention;
mod ik;
mod legacy;
mod product;

use std::borrow::Cow;
use std::collections::HashSet;

use plimsoll_base::{Bytes, Counting, Source};
use plimsoll_model::{Model, Tensor};
use plimsoll_pool::demand::Rules;
use plimsoll_pool::replay::{GRANULE, driver_takes};

use self::attention::AttentionPool;
use crate::engine_context::EngineContext;
use crate::{
    CacheKind, DeviceLayout, EngineQuirks, LatentAttention, PlanRequest, PlanTerm, Reserve, TensorDevice,
    calibration, compute, margin,
};

/// Compute capability of a card that was described without one: that of the H200.
const USUAL_CAPABILITY: (u32, u32) = (9, 0);

/// Run-time pool of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunTimePool {
    /// Position of its card in the request.
    pub(super) card: usize,
    /// Bytes at full depth.
    pub(super) peak: PlanTerm,
    /// Bytes that one more token of depth costs.
    pub(super) growth: Bytes,
}

/// Cache, engine and flags that determine the size of a pool.
#[derive(Clone, Copy, Debug)]
struct PoolInputs {
    rules: Rules,
    flash_attention: bool,
    cache: CacheKind,
    /// Cells at full depth.
    cells: u64,
}

/// The matrices of each device, one of each size and type. The batch decides which of them needs the most.
pub(super) fn matrices<'a>(model: &'a Model, layout: &DeviceLayout) -> Vec<Vec<&'a Tensor>> {
    let mut matrices: Vec<Vec<&Tensor>> = vec![Vec::new(); layout.devices.len()];
    let mut known = HashSet::new();
    // A tensor of one row is no matrix: norms and biases ask for nothing.
    for tensor in model.tensors.iter().filter(|tensor| tensor.shape[1] > 1) {
        if let TensorDevice::Card(device) = layout.tensor(tensor)
            && known.insert((device, tensor.shape, tensor.kind.id))
        {
            matrices[usize::from(device)].push(tensor);
        }
    }
    matrices
}

impl EngineContext<'_> {
    /// The pools of the context at a depth of `cells`, one for each device.
    pub(super) fn pools(&self, request: &PlanRequest<'_>, reserve: &Reserve, cells: u64) -> Vec<RunTimePool> {
        let regrown = self.regrown(request, reserve, cells);
        let pools = regrown.into_iter().enumerate();
        let pool = |(device, regrown)| {
            let mut pool = self.pool(request, device, reserve, cells);
            pool.peak += regrown;
            pool
        };
        pools.map(pool).collect()
    }

    /// The pool of one device.
    fn pool(&self, request: &PlanRequest<'_>, device: usize, reserve: &Reserve, cells: u64) -> RunTimePool {
        let (quirks, model, cache) = (EngineQuirks::of(request), self.model, self.graph.cache);
        let on = self.layout.devices[device];
        let card = &request.cards[on];
        let (major, minor) = card.compute_capability.unwrap_or(USUAL_CAPABILITY);
        let rules = Rules {
            capability: major.saturating_mul(100).saturating_add(minor.saturating_mul(10)),
            processors: calibration::processors(card),
            engine: quirks.pool,
        };
        let inputs = PoolInputs { rules, flash_attention: self.graph.flash.on, cache, cells };
        let weights = self.matrices[device].iter();
        let group = |tensor: &&Tensor| product::group(tensor, model, reserve, rules, quirks.fuses_experts);
        let products: Vec<_> = weights.clone().map(group).collect();
        let here = TensorDevice::card(device);
        let attends = |layer: &u32| self.layout.layer(*layer) == here && !model.hyper.recurs(*layer);
        let attention = (0..model.hyper.layers)
            .filter(attends)
            .map(|layer| AttentionPool::of(model, layer, reserve, inputs))
            .max_by_key(|attention| attention.most(cells))
            .unwrap_or_default();
        // Before the rotation of a quantised cache had a kernel of its own, it was a product in F32.
        let rotates = rules.engine.copies() && cache.key.quantised();
        let multiplies = || weights.clone().any(|tensor| product::is_for_cublas(tensor, reserve, rules));
        // Once loaded, cuBLAS keeps its workspace and kernels for the life of the process.
        let uses_cublas = rotates || !inputs.flash_attention || cache.latent.is_some() || multiplies();
        let cublas = if uses_cublas { calibration::cublas(request, card) } else { Bytes::ZERO };
        // The legacy pool strands blocks only where a cache copy grows; elsewhere both pools hold the same.
        let strands = card.legacy_pool && rules.engine.copies();
        let peak = if strands {
            let first = attention::warm_up(model, inputs);
            let groups = |depth| attention.group(rules, depth);
            let pool = legacy::replayed(first, products, reserve.tokens, cells, groups);
            let blocks = pool.policy().idle();
            match card.counting {
                Counting::Guard => sum(blocks),
                Counting::Driver => Bytes::new(driver_takes(blocks)),
            }
        } else {
            let hungriest = products.into_iter().map(sum).max().unwrap_or_default();
            hungriest.max(attention.most(cells)).padded(GRANULE)
        };
        let source = match cache.latent {
            _ if strands => LEGACY,
            Some(_) => LATENT,
            None => Source::Formula("mmq.cu:ggml_cuda_mul_mat_q, fattn-common.cuh:launch_fattn @ b10605"),
        };
        let of_cuda =
            RunTimePool { card: on, peak: PlanTerm::new(peak + cublas, source), growth: attention.growth };
        match margin::of_pool(request, (self, device), cells) {
            Some((peak, growth)) if peak.known() > of_cuda.peak.known() => {
                RunTimePool { peak, growth, ..of_cuda }
            }
            _ => of_cuda,
        }
    }

    /// Growth of each device's compute buffer at run time beyond the reserved size, where a shallower cache
    /// needs more than the deepest. ik_llama.cpp 8337e4cd: `llama_init_from_model` reserves once,
    /// `ggml_gallocr_reserve_n` takes more and keeps it.
    fn regrown(&self, request: &PlanRequest<'_>, reserve: &Reserve, cells: u64) -> Vec<Bytes> {
        let mut most = vec![Bytes::ZERO; self.layout.devices.len()];
        let restores = |latent: &LatentAttention| latent.restores(self.graph.flash.on, reserve.tokens);
        let Some(latent) = self.graph.cache.latent.filter(restores) else { return most };
        let compute = |reserve: &Reserve| compute::compute(request, &self.graph, reserve).cards;
        // Only borders can exceed the reserved size: between two of them the buffer grows with depth.
        for border in latent.borders(self.model.hyper.heads.at(0), cells.saturating_add(1)) {
            let shallower = Reserve { context: border, per_sequence: border, ..*reserve };
            for (most, needed) in most.iter_mut().zip(compute(&shallower)) {
                *most = needed.max(*most);
            }
        }
        let beyond = most.iter().zip(compute(reserve));
        beyond.map(|(needed, reserved)| needed.saturating_sub(reserved)).collect()
    }

    /// Cells that the pool reaches at full depth.
    pub(super) fn deepest(&self, reserve: &Reserve, request: &PlanRequest<'_>) -> u64 {
        // A copy of the cache holds all sequences that are worked on at once. Without flash attention they
        // share a micro-batch, so one sequence counts (`llama-graph.cpp: build_attn_mha @ b10605`).
        let together = self.graph.flash.on && !EngineQuirks::of(request).reserves_cache_copy;
        if together { reserve.context } else { reserve.per_sequence }
    }
}

const LEGACY: Source =
    Source::Calibration(Cow::Borrowed("simulation of ggml_cuda_pool_leg's best-fit search for a prompt"));
const LATENT: Source = Source::Formula(
    "ggml-cuda.cu:ggml_cuda_op_mul_mat_cublas, fattn-new-mma.cu:launch_fattn_new_mma @ ik_llama.cpp 8337e4cd",
);

/// The sum of blocks that are in use together.
fn sum(sizes: impl IntoIterator<Item = u64>) -> Bytes {
    sizes.into_iter().map(Bytes::new).sum()
}
