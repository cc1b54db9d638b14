//! The run-time pool: what operations borrow while they run. No planner of the engine's own counts it.
//!
//! Mirrors `ggml-cuda.cu: ggml_cuda_pool_vmm, ggml_cuda_pool_leg`, `mmq.cu: ggml_cuda_mul_mat_q`,
//! `mmq.cuh: launch_mul_mat_q` and `fattn-common.cuh: launch_fattn @ b8799, b10605`. One operation runs at a time, so
//! with virtual memory the pool's peak is the hungriest operation, in steps of 2 MiB. The legacy pool strands
//! blocks as a cache copy grows; its peak comes from replaying a prompt against its best-fit rule (`legacy`).

mod ik;
mod legacy;

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
use crate::place::{Card, Counting};

/// Granularity of the pool with virtual memory.
const GRANULE: u64 = 2 << 20;
/// From here on a block has granules of its own.
const LARGE: Bytes = Bytes::mib(1);
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
    /// A build of llama.cpp before b9400.
    pub(super) older: bool,
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
    layout: &Layout,
    (device, weights): (usize, &[&Tensor]),
    card: &Card,
    reserve: &Reserve,
    depth: Depth,
) -> Pool {
    let processors = calibration::processors(card);
    let fixed = weights
        .iter()
        .map(|tensor| matrix(tensor, model, reserve.tokens, (processors, depth)).sum())
        .max()
        .unwrap_or_default();
    let here = Place::device(device);
    let attends =
        (0..model.hyper.layers).filter(|&layer| layout.layer(layer) == here && !model.hyper.recurs(layer));
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
    let peak = if card.legacy_pool && depth.copies_cache {
        let of_one = |tensor: &&Tensor| matrix(tensor, model, reserve.tokens, (processors, depth));
        let products = weights.iter().map(of_one).collect();
        let first = warm_up(model, depth.key);
        let blocks = legacy::blocks(first, products, growth.scaled(1, 2), reserve, depth.cells);
        counted(&blocks, card.counting) + cublas
    } else {
        fixed.max(constant + growth * depth.cells).padded(GRANULE) + cublas
    };
    Pool {
        peak: Term::new(peak, source(card, depth)),
        growth,
    }
}

/// What two tokens of warm-up ask for first: the activations of a product of width `n_embd`, and what attention adds up. A quantised cache is read by
/// the vector kernel in two parts, another by the kernel of the matrix units in 16 blocks of 8 columns.
fn warm_up(model: &Model, key: TensorType) -> [Bytes; 2] {
    let hyper = &model.hyper;
    let activations = Bytes::new(u64::from(hyper.embedding)).padded(512).scaled(36, 32) * 2;
    let width = u64::from(hyper.head_lengths(0).1);
    let attention = if key.quantised() {
        Bytes::new(2 * 2 * 4) * width * u64::from(hyper.heads.at(0))
    } else {
        Bytes::new(16 * 8 * 8) * (2 + width / 2)
    };
    [activations, attention]
}

/// The driver gives a large block whole granules and lays small ones together.
fn counted(blocks: &[Bytes], counting: Counting) -> Bytes {
    match counting {
        Counting::Guard => blocks.iter().copied().sum(),
        Counting::Driver => {
            let (large, small): (Vec<Bytes>, Vec<Bytes>) = blocks.iter().partition(|block| **block >= LARGE);
            let large: Bytes = large.into_iter().map(|block| block.padded(GRANULE)).sum();
            large + small.into_iter().sum::<Bytes>().padded(GRANULE)
        }
    }
}

fn source(card: &Card, depth: Depth) -> Source {
    if card.legacy_pool && depth.copies_cache {
        return Source::Calibration(Cow::Borrowed(
            "replay of ggml_cuda_pool_leg's best fit over a prompt",
        ));
    }
    if depth.latent.is_some() {
        return Source::Formula(
            "ggml-cuda.cu:ggml_cuda_op_mul_mat_cublas, fattn-new-mma.cu:launch_fattn_new_mma @ ik_llama.cpp 8337e4cd",
        );
    }
    Source::Formula("mmq.cu:ggml_cuda_mul_mat_q, fattn-common.cuh:launch_fattn @ b10605")
}

/// What one matrix multiplication holds at once: its activations with their order, and partial tiles.
#[derive(Clone, Copy, Debug)]
struct Product {
    activations: Bytes,
    partial: Bytes,
}

impl Product {
    fn sum(self) -> Bytes {
        self.activations + self.partial
    }
}

/// One matrix multiplication with `tokens` columns.
fn matrix(tensor: &Tensor, model: &Model, tokens: u64, (processors, depth): (u64, Depth)) -> Product {
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
        let activations = if narrow {
            Bytes::new(2) * width * columns
        } else {
            Bytes::ZERO
        };
        return Product {
            activations,
            partial: Bytes::ZERO,
        };
    }
    let row = Bytes::new(width).padded(512).scaled(ACTIVATION_BLOCK, TILE);
    let activations = row * columns + Bytes::new(TILE * ACTIVATION_BLOCK);
    let ids = if experts > 1 {
        Bytes::new(8) * columns + Bytes::new(4) * experts.saturating_add(1)
    } else {
        Bytes::ZERO
    };
    let halves = if depth.fused {
        ik::halves(tensor, columns)
    } else {
        Bytes::ZERO
    };
    let partial = fixup(tensor.shape[1], tokens, experts, (processors, depth.older));
    Product {
        activations: activations + ids + halves,
        partial,
    }
}

/// Partial tiles, needed where the tiles are no whole number of waves over the processors; since b9400 at most, not where the last wave
/// is nearly whole (`mmq.cuh: launch_mul_mat_q @ b8799, b10605`).
fn fixup(rows: u64, columns: u64, channels: u64, (processors, older): (u64, bool)) -> Bytes {
    let tiles = rows
        .div_ceil(TILE)
        .saturating_mul(columns.div_ceil(TILE))
        .saturating_mul(channels);
    let waves = tiles.div_ceil(processors).max(1);
    let whole = !older && tiles.saturating_mul(100) / processors.saturating_mul(waves) >= 90;
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
    (
        cut_tiles(u64::from(hyper.head_lengths(layer).1), processors),
        copy(depth.key, key) + copy(depth.value, value),
    )
}

/// Partial results of the attention of a prompt whose last micro-batch is no whole number of tiles, which any prompt can have: 64 columns
/// for each of two blocks a processor, one where heads are wider than 256 (`fattn-common.cuh: launch_fattn @ b8799`).
fn cut_tiles(width: u64, processors: u64) -> Bytes {
    let at_once = if width > 256 { 1 } else { 2 };
    Bytes::new(8 * 64) * (2 + width / 2) * at_once * processors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_tiles_cost_a_tile_for_each_processor() {
        // 32 x 4 tiles on 132 processors are one wave of 97 %; 112 x 4 leave a quarter idle
        assert_eq!(fixup(4096, 512, 1, (132, false)), Bytes::ZERO);
        assert_eq!(
            fixup(14_336, 512, 1, (132, false)),
            Bytes::new(132 * 128 * 128 * 4)
        );
        assert_eq!(fixup(4096, 512, 1, (132, true)), Bytes::new(132 * 128 * 128 * 4));
    }

    #[test]
    fn a_last_micro_batch_of_a_prompt_leaves_tiles_cut() {
        // b8799 on an H200, 55 016 and 55 272 tokens of q8_0: 224 and 226 MiB
        assert_eq!(cut_tiles(128, 132), Bytes::new(8_921_088));
    }
}
