//! Run-time pool: temporary GPU memory of operations, which the engine leaves out of its own memory estimate.
//!
//! A pool with virtual memory management needs as much as the largest operation (`ggml-cuda.cu:
//! ggml_cuda_pool_vmm @ b8799, b10605`). ggml's legacy pool also keeps blocks that became too small.

mod attention;
mod ik;
mod legacy;
mod product;

use std::borrow::Cow;
use std::collections::HashSet;

use plimsoll_base::{Bytes, Card, Counting, Source};
use plimsoll_model::{Model, Tensor, TensorType};
use plimsoll_pool::demand::{DemandRules, Rules};
use plimsoll_pool::replay::{GRANULE, driver_takes};

use self::attention::AttentionPool;
use super::calibration;
use super::latent::LatentAttention;
use super::layout::{DeviceLayout, TensorDevice};
use super::outcome::PlanTerm;
use super::reserve::Reserve;

/// Compute capability of a card that was described without one: that of the H200.
const USUAL_CAPABILITY: (u32, u32) = (9, 0);

/// Run-time pool of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunTimePool {
    /// Bytes at full depth.
    pub(super) peak: PlanTerm,
    /// Bytes that one more token of depth costs.
    pub(super) growth: Bytes,
}

/// Cache, engine and flags that determine the size of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolInputs {
    pub(super) flash_attention: bool,
    pub(super) engine: DemandRules,
    pub(super) key: TensorType,
    pub(super) value: TensorType,
    /// Cells at full depth.
    pub(super) cells: u64,
    /// ik_llama.cpp's latent attention.
    pub(super) latent: Option<LatentAttention>,
    /// `ffn_up` and `ffn_gate` are one operation (ik_llama.cpp).
    pub(super) fused: bool,
    /// Memory that the first use of cuBLAS takes and keeps.
    pub(super) cublas: Bytes,
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

/// The pool of one device, whose matrices are `weights`.
pub(super) fn pool(
    model: &Model,
    layout: &DeviceLayout,
    (device, weights): (usize, &[&Tensor]),
    card: &Card,
    reserve: &Reserve,
    depth: PoolInputs,
) -> RunTimePool {
    let rules = rules(card, depth.engine);
    let products = weights.iter().map(|tensor| product::group(tensor, model, reserve, (rules, depth.fused)));
    let products: Vec<_> = products.collect();
    let here = TensorDevice::card(device);
    let attends =
        (0..model.hyper.layers).filter(|&layer| layout.layer(layer) == here && !model.hyper.recurs(layer));
    let attention = attends
        .map(|layer| AttentionPool::of(model, layer, reserve, (rules, depth)))
        .max_by_key(|attention| attention.most(depth.cells))
        .unwrap_or_default();
    // Before the rotation of a quantised cache had a kernel of its own, it was a product in F32.
    let rotates = depth.engine.copies() && depth.key.quantised();
    let multiplies = weights.iter().any(|tensor| product::is_for_cublas(tensor, reserve, rules));
    // Once loaded, cuBLAS keeps its workspace and kernels for the life of the process.
    let cublas = if multiplies || rotates || !depth.flash_attention || depth.latent.is_some() {
        depth.cublas
    } else {
        Bytes::ZERO
    };
    // The legacy pool strands blocks only where a cache copy grows; elsewhere both pools hold the same.
    let peak = if card.legacy_pool && depth.engine.copies() {
        let first = attention::warm_up(model, depth, rules);
        let blocks = legacy::blocks(first, products, attention, rules, reserve, depth.cells);
        counted(blocks, card.counting)
    } else {
        let hungriest = products.into_iter().map(sum).max().unwrap_or_default();
        hungriest.max(attention.most(depth.cells)).padded(GRANULE)
    };
    RunTimePool { peak: PlanTerm::new(peak + cublas, source(card, depth)), growth: attention.growth }
}

fn rules(card: &Card, engine: DemandRules) -> Rules {
    let (major, minor) = card.compute_capability.unwrap_or(USUAL_CAPABILITY);
    Rules {
        capability: major.saturating_mul(100).saturating_add(minor.saturating_mul(10)),
        processors: calibration::processors(card),
        engine,
    }
}

/// The sum of blocks that are in use together.
fn sum(sizes: impl IntoIterator<Item = u64>) -> Bytes {
    sizes.into_iter().map(Bytes::new).sum()
}

fn counted(blocks: Vec<u64>, counting: Counting) -> Bytes {
    match counting {
        Counting::Guard => sum(blocks),
        Counting::Driver => Bytes::new(driver_takes(blocks)),
    }
}

fn source(card: &Card, depth: PoolInputs) -> Source {
    if card.legacy_pool && depth.engine.copies() {
        return Source::Calibration(Cow::Borrowed(
            "simulation of ggml_cuda_pool_leg's best-fit search for a \
            prompt",
        ));
    }
    if depth.latent.is_some() {
        return Source::Formula(
            "ggml-cuda.cu:ggml_cuda_op_mul_mat_cublas, fattn-new-mma.cu:launch_fattn_new_mma @ ik_llama.cpp 8337e4cd",
        );
    }
    Source::Formula("mmq.cu:ggml_cuda_mul_mat_q, fattn-common.cuh:launch_fattn @ b10605")
}
