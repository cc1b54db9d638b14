//! Computes the temporary memory of operations that only ik_llama.cpp has: latent attention (MLA) and fused
//! experts.
//!
//! The sizes come from the engine's sources @ 8337e4cd and agree with `data/measured/h200-ik.json`.

use plimsoll_base::Bytes;
use plimsoll_model::{Tensor, TensorType};
use plimsoll_pool::demand::attention::partial_results;
use plimsoll_pool::demand::latent::{copied, restored};
use plimsoll_pool::demand::{DemandGroup, DemandRules};

use crate::LatentAttention;
use crate::pool::sum;

/// Columns of queries for each block of the attention kernel (`fattn-new-mma.cu:
/// ggml_cuda_flash_attn_ext_mma_f16_switch_ncols1`).
const COLUMNS: u64 = 64;
/// Number of cells from which on there are twice as many blocks.
const MANY_CELLS: u64 = 4096;
/// Blocks that a processor holds at once. Registers decide: 185 of 128 threads for whole heads and 255 of 256
/// threads for latent vectors (`cuobjdump -res-usage` of `fattn-new-mma.cu`, nvcc 13.0, sm_90).
const BLOCKS_OF_HEADS: u64 = 2;
const BLOCKS_OF_VECTORS: u64 = 1;

/// Pool memory for the latent attention of one layer over a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatentPool {
    pub(super) latent: LatentAttention,
    pub(super) heads: u32,
    pub(super) key: TensorType,
    pub(super) tokens: u64,
    pub(super) processors: u64,
}

impl LatentPool {
    /// Pool bytes of attention with its kernel over `cells`: a constant, and bytes for each cell.
    pub(super) fn attention(&self, cells: u64) -> (Bytes, Bytes) {
        let latent = &self.latent;
        let vectors = self.partials(latent.rank, BLOCKS_OF_VECTORS, cells);
        let absorbed = latent.absorbs().then(|| (vectors, self.copied(1)));
        if !latent.restores(true, self.tokens) {
            return absorbed.unwrap_or_default();
        }
        let (constant, growth) = self.restored(cells);
        // A prompt ends with a few tokens, which are attended to like an answer.
        let last = absorbed.map(|(constant, growth)| constant + growth * cells);
        let shallower = latent.borders(self.heads, cells).into_iter().map(|border| {
            let (constant, growth) = self.restored(border);
            constant + growth * border
        });
        let whole = self.partials(latent.value, BLOCKS_OF_HEADS, cells);
        let most = shallower.chain(last).fold(whole, Bytes::max);
        // The pool never shrinks, so a larger demand at a smaller depth stays as a constant.
        (constant.max(most.saturating_sub(growth * cells)), growth)
    }

    /// Blocks of one pass over `depth` cells, with as many heads as fit it at `cells`.
    fn pass(&self, cells: u64, depth: u64) -> DemandGroup<4> {
        let heads = self.latent.heads_a_pass(self.heads.into(), cells);
        let length = heads.saturating_mul(self.latent.restored());
        restored(self.latent.rank, length, self.key.quantised(), depth)
    }

    /// Bytes of one pass: a constant, and bytes for each cell.
    fn restored(&self, cells: u64) -> (Bytes, Bytes) {
        let constant = sum(self.pass(cells, 0));
        (constant, sum(self.pass(cells, 1)).saturating_sub(constant))
    }

    /// Bytes of the cache's f16 copy, if the cache has another type.
    fn copied(&self, cells: u64) -> Bytes {
        let row = self.latent.rank + self.latent.rope;
        match self.key.name {
            "f16" => Bytes::ZERO,
            _ => Bytes::new(copied(row, cells)),
        }
    }

    /// Partial results of attention for values of this length.
    fn partials(&self, length: u64, blocks: u64, cells: u64) -> Bytes {
        // The kernel counts on a power of two of processors, and on twice as many over a deep cache.
        let counted = 1 << self.processors.max(1).ilog2();
        let waves = if cells < MANY_CELLS { counted } else { 2 * counted };
        Bytes::new(partial_results(DemandRules::Ik, blocks * waves, COLUMNS, length))
    }
}

/// Products of `ffn_up` and `ffn_gate` before they become one (`ggml-cuda.cu: ggml_cuda_moe_up_gate_unary,
/// ggml_cuda_up_gate_unary`): both of them for experts, one of them otherwise.
pub(super) fn halves(tensor: &Tensor, columns: u64) -> Bytes {
    let halves = match tensor.name.split('.').nth(2) {
        Some("ffn_up_exps" | "ffn_gate_exps") => 2,
        Some("ffn_up" | "ffn_gate" | "ffn_up_shexp" | "ffn_gate_shexp") => 1,
        _ => 0,
    };
    Bytes::new(4 * halves) * tensor.shape[1] * columns
}

/// True if a type has a kernel for tiles (`mmq.cu: ggml_cuda_should_use_mmq`), as few interleaved types do.
pub(super) fn has_tiles(name: &str) -> bool {
    const INTERLEAVED: [&str; 7] =
        ["iq1_s_r4", "iq2_k_r4", "iq3_k_r4", "iq4_k_r4", "iq4_ks_r4", "iq5_k_r4", "iq5_ks_r4"];
    const NONE: [&str; 4] = ["iq1_m", "iq1_bn", "iq2_bn", "nvfp4"];
    // The ending tells how many rows are interleaved.
    let interleaved = ["_r4", "_r8", "_r16"].iter().any(|end| name.ends_with(end));
    if interleaved { INTERLEAVED.contains(&name) } else { !NONE.contains(&name) }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::types;

    use super::*;
    use crate::latent::kimi;

    /// On an H200: 132 processors.
    fn kimi_pool(mode: u32, pass: Option<u64>, key: TensorType) -> LatentPool {
        LatentPool { latent: kimi(mode, pass), heads: 64, key, tokens: 512, processors: 132 }
    }

    fn most(mode: u32, pass: Option<u64>, key: TensorType, cells: u64) -> Bytes {
        let (constant, growth) = kimi_pool(mode, pass, key).attention(cells);
        constant + growth * cells
    }

    #[test]
    fn restored_keys_and_values_grow_by_34_kib_a_token_on_kimi_k2() {
        let restored = |heads, key| {
            let pool = kimi_pool(3, None, key);
            LatentPool { heads, ..pool }.restored(32_768)
        };
        assert_eq!(restored(64, types::F16), (Bytes::mib(16), Bytes::kib(34)));
        assert_eq!(restored(128, types::F16).1, Bytes::kib(66));
        assert_eq!(restored(64, types::Q8_0).1, Bytes::kib(35));
    }

    #[test]
    fn the_pool_keeps_what_a_shallower_cache_needed() {
        let at = |cells| most(3, Some(512), types::F16, cells);
        // 16 heads a pass at 32768 cells, 8 at the next step
        assert_eq!(at(32_768), Bytes::mib(4 + 256 + 64));
        assert_eq!(at(33_024), at(32_768));
        assert!(at(65_536) > at(33_024));
    }

    #[test]
    fn partial_results_of_latent_vectors_take_258_mib_whatever_the_depth() {
        // 32 bytes for each of 516 values of 64 columns in 256 blocks
        let results = Bytes::new(32 * 516 * 64 * 256);
        assert_eq!(most(1, Some(512), types::F16, 60_160), results);
        assert_eq!(most(1, Some(512), types::Q8_0, 60_160), results + Bytes::new(1152 * 60_160));
        assert_eq!(most(1, Some(512), types::F16, 2048), results.scaled(1, 2));
    }
}
