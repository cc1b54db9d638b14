//! The run-time pool: what operations borrow while they run. No planner of the engine's own counts it.
//!
//! Mirrors `ggml-cuda.cu: ggml_cuda_pool_vmm, ggml_cuda_pool_leg`, `mmq.cu: ggml_cuda_mul_mat_q`,
//! `mmq.cuh: launch_mul_mat_q` and `fattn-common.cuh: launch_fattn @ b10605`. One operation runs at a time, so
//! with virtual memory the pool's peak is the hungriest operation, in steps of 2 MiB. The legacy pool strands
//! blocks as a cache copy grows; its peak comes from replaying that growth against its best-fit rule.

mod ik;

use std::borrow::Cow;
use std::collections::HashSet;

use super::calibration;
use super::latent::Latent;
use super::layout::{Layout, Place};
use super::outcome::Term;
use super::reserve::Reserve;
use crate::bytes::Bytes;
use crate::explain::Source;
use crate::model::{Model, Tensor, TensorType};
use crate::place::Card;

/// Granularity of the pool with virtual memory.
const GRANULE: u64 = 2 << 20;
/// Largest tile of the quantised matrix kernels, in columns and rows.
const TILE: u64 = 128;
/// Bytes of 128 activations in `block_q8_1_mmq`.
const ACTIVATION_BLOCK: u64 = 144;

/// What the pool of one device takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    /// At full depth.
    pub(super) peak: Term,
    /// Bytes that one more token of depth costs.
    pub(super) growth: Bytes,
}

/// What decides the growth of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub(super) flash_attention: bool,
    /// The engine copies a quantised cache to f16 in the pool (builds before PR 23907).
    pub(super) copies_cache: bool,
    pub(super) key: TensorType,
    pub(super) value: TensorType,
    /// Cells at full depth.
    pub(super) cells: u64,
    /// ik_llama.cpp's ways with latent attention.
    pub(super) latent: Option<Latent>,
    /// That engine multiplies `ffn_up` and `ffn_gate` in one operation.
    pub(super) fused: bool,
    /// What the first use of cuBLAS takes and keeps.
    pub(super) cublas: Bytes,
}

/// The matrices of each device, one of each size and type: which of them is the hungriest depends on the batch.
pub(super) fn matrices<'a>(model: &'a Model, layout: &Layout) -> Vec<Vec<&'a Tensor>> {
    let mut matrices: Vec<Vec<&Tensor>> = vec![Vec::new(); layout.devices.len()];
    let mut known = HashSet::new();
    for tensor in model.tensors.iter().filter(|tensor| tensor.shape[1] > 1) {
        if let Place::Device(device) = layout.tensor(tensor)
            && known.insert((device, tensor.shape, tensor.kind))
        {
            matrices[device].push(tensor);
        }
    }
    matrices
}

/// The pool of one device, whose matrices are `weights`.
pub(super) fn pool(
    model: &Model,
    layout: &Layout,
    (device, weights): (usize, &[&Tensor]),
    card: &Card,
    reserve: &Reserve,
    depth: Depth,
) -> Pool {
    let processors = calibration::processors(card);
    let fixed = weights
        .iter()
        .map(|tensor| matrix(tensor, model, reserve.tokens, (processors, depth.fused)))
        .max()
        .unwrap_or_default();
    let attends = (0..model.hyper.layers)
        .filter(|&layer| layout.layer(layer) == Place::Device(device) && !model.hyper.recurs(layer));
    let (constant, growth) = attends
        .map(|layer| depth_growth(model, layer, (reserve, processors), depth))
        .max_by_key(|(constant, growth)| *constant + *growth * depth.cells)
        .unwrap_or_default();
    // before the rotation of a quantised cache had a kernel of its own it was a product in F32
    let rotates = depth.copies_cache && depth.key.quantised();
    let plain = weights.iter().any(|tensor| !tensor.kind.quantised());
    let cublas = if plain || rotates || !depth.flash_attention || depth.latent.is_some() {
        depth.cublas
    } else {
        Bytes::ZERO
    };
    let grown = if card.legacy_pool && depth.copies_cache {
        legacy_growth(growth, reserve, depth.cells)
    } else {
        constant + growth * depth.cells
    };
    let peak = fixed.max(grown).padded(GRANULE) + cublas;
    Pool {
        peak: Term::new(peak, source(card, depth)),
        growth,
    }
}

fn source(card: &Card, depth: Depth) -> Source {
    if card.legacy_pool && depth.copies_cache {
        return Source::Calibration(Cow::Borrowed(
            "replay of ggml_cuda_pool_leg's best fit over a growing cache copy",
        ));
    }
    if depth.latent.is_some() {
        return Source::Formula(
            "ggml-cuda.cu:ggml_cuda_op_mul_mat_cublas, fattn-new-mma.cu:launch_fattn_new_mma @ ik_llama.cpp 8337e4cd",
        );
    }
    Source::Formula("mmq.cu:ggml_cuda_mul_mat_q, fattn-common.cuh:launch_fattn @ b10605")
}

/// Pool bytes of one matrix multiplication with `tokens` columns.
fn matrix(tensor: &Tensor, model: &Model, tokens: u64, (processors, fused): (u64, bool)) -> Bytes {
    let (columns, experts) = match &model.hyper.experts {
        Some(experts) if tensor.shape[2] > 1 => {
            (tokens.saturating_mul(u64::from(experts.used)), tensor.shape[2])
        }
        _ => (tokens, 1),
    };
    let width = tensor.shape[0];
    if !tensor.kind.quantised() {
        // F32 is multiplied as it is; F16 and BF16 need the activations in their own type
        let narrow = tensor.kind.size == 2;
        return if narrow {
            Bytes::new(2) * width * columns
        } else {
            Bytes::ZERO
        };
    }
    let row = Bytes::new(width).padded(512).scaled(ACTIVATION_BLOCK, TILE);
    let activations = row * columns + Bytes::new(TILE * ACTIVATION_BLOCK);
    let ids = if experts > 1 {
        Bytes::new(8) * columns + Bytes::new(4) * experts.saturating_add(1)
    } else {
        Bytes::ZERO
    };
    let halves = if fused {
        ik::halves(tensor, columns)
    } else {
        Bytes::ZERO
    };
    activations + ids + halves + fixup(tensor.shape[1], tokens, experts, processors)
}

/// Partial tiles, needed where the tiles are no whole number of waves over the processors.
fn fixup(rows: u64, columns: u64, channels: u64, processors: u64) -> Bytes {
    let tiles = rows
        .div_ceil(TILE)
        .saturating_mul(columns.div_ceil(TILE))
        .saturating_mul(channels);
    let waves = tiles.div_ceil(processors).max(1);
    let whole = tiles.saturating_mul(100) / processors.saturating_mul(waves) >= 90;
    if whole || tiles.is_multiple_of(processors) {
        Bytes::ZERO
    } else {
        Bytes::new(4 * TILE * TILE) * processors
    }
}

/// Pool bytes of one layer's attention: those that it takes at any depth, and those for each cell in use.
fn depth_growth(
    model: &Model,
    layer: u32,
    (reserve, processors): (&Reserve, u64),
    depth: Depth,
) -> (Bytes, Bytes) {
    let hyper = &model.hyper;
    let heads = hyper.heads.at(layer);
    if !depth.flash_attention {
        let at_once = match depth.latent {
            Some(latent) => latent.heads_a_step(heads, reserve.tokens, depth.cells),
            None => u64::from(heads),
        };
        // the probabilities in f16, for the product with V
        return (Bytes::ZERO, Bytes::new(2) * reserve.tokens * at_once);
    }
    if let Some(latent) = &depth.latent
        && latent.mode > 0
    {
        let batch = (reserve.tokens, processors);
        return ik::attention(latent, heads, depth.key, depth.cells, batch);
    }
    if !depth.copies_cache {
        return (Bytes::ZERO, Bytes::ZERO);
    }
    let copy = |kind: TensorType, elements: u64| {
        if kind.name == "f16" {
            Bytes::ZERO
        } else {
            Bytes::new(2) * elements
        }
    };
    let (key, value) = match depth.latent {
        Some(latent) => latent.rows(heads, true),
        None => (hyper.key_row(layer), hyper.value_row(layer)),
    };
    (Bytes::ZERO, copy(depth.key, key) + copy(depth.value, value))
}

/// Blocks that the legacy pool holds after a prompt filled the cache micro-batch by micro-batch: each step asks for
/// a larger copy of K and of V, takes the best fit among the free blocks, else 1.05 times the size anew.
fn legacy_growth(per_cell: Bytes, reserve: &Reserve, cells: u64) -> Bytes {
    const STEPS: u64 = 4096;
    let half = per_cell.scaled(1, 2);
    let step = reserve.tokens.max(cells / STEPS).max(1);
    let mut blocks: Vec<Bytes> = Vec::new();
    let mut depth = step.min(cells);
    while depth > 0 {
        let size = half * depth.next_multiple_of(super::reserve::CELLS);
        let free = blocks.iter().filter(|block| **block >= size).count();
        for _ in free..2 {
            blocks.push(size.scaled(105, 100).padded(256));
        }
        if depth == cells {
            break;
        }
        depth = depth.saturating_add(step).min(cells);
    }
    blocks.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_tiles_cost_a_tile_for_each_processor() {
        // 32 x 4 tiles on 132 processors are one wave of 97 %; 112 x 4 leave a quarter idle
        assert_eq!(fixup(4096, 512, 1, 132), Bytes::ZERO);
        assert_eq!(fixup(14_336, 512, 1, 132), Bytes::new(132 * 128 * 128 * 4));
    }

    #[test]
    fn the_legacy_pool_strands_what_it_outgrew() {
        let reserve = Reserve {
            context: 65_536,
            per_sequence: 65_536,
            sequences: 1,
            streams: 1,
            micro_batch: 512,
            tokens: 512,
            outputs: 512,
            full_sliding: false,
        };
        let grown = legacy_growth(Bytes::new(4096), &reserve, 61_440);
        assert!(grown > Bytes::mib(3800) && grown < Bytes::mib(4600), "{grown}");
    }
}
