//! What operations of ik_llama.cpp borrow that llama.cpp's do not: restored keys and values, partial results of latent attention,
//! both halves of fused experts.
//!
//! Read off its sources @ 8337e4cd and held to `data/measured/h200-ik.json`. The pool keeps the most that any depth needed, and with `-amb`
//! a shallow one may need more than a deep one, because more heads are restored at once.

use plimsoll_base::Bytes;
use plimsoll_model::{Tensor, TensorType};
use plimsoll_pool::demand::attention::partial_results;
use plimsoll_pool::demand::latent::{copied as latent_copy, restored as restored_in_a_pass};
use plimsoll_pool::demand::{Engine, Group};

use super::sum;
use crate::latent::LatentAttention;

/// Columns of queries that a block of the attention kernel works on (`fattn-new-mma.cu: ggml_cuda_flash_attn_ext_mma_f16_switch_ncols1`).
const COLUMNS: u64 = 64;
/// From so many cells on there are twice as many blocks.
const MANY_CELLS: u64 = 4096;
/// Blocks that a processor holds at once: registers decide, 185 of 128 threads for whole heads and 255 of 256 threads for latent vectors
/// (`cuobjdump -res-usage` of `fattn-new-mma.cu`, nvcc 13.0, sm_90).
const BLOCKS_OF_HEADS: u64 = 2;
const BLOCKS_OF_VECTORS: u64 = 1;

/// Pool bytes of one layer's latent attention with its kernel: a constant, and so many for each cell once there are `cells`.
pub(super) fn attention(
    latent: &LatentAttention,
    heads: u32,
    key: TensorType,
    cells: u64,
    (tokens, processors): (u64, u64),
) -> (Bytes, Bytes) {
    let kernel = |length, blocks| partials(length, blocks * waves(cells, processors));
    let absorbed = latent
        .absorbs()
        .then(|| (kernel(latent.rank(), BLOCKS_OF_VECTORS), copied(latent, key)));
    if !latent.restores(true, tokens) {
        return absorbed.unwrap_or_default();
    }
    let (constant, growth) = restored(latent, heads, key, cells);
    // a prompt ends with a few tokens that are attended to as an answer is
    let last = absorbed.map(|(constant, growth)| constant + growth * cells);
    let shallower = latent.borders(heads, cells).into_iter().map(|border| {
        let (constant, growth) = restored(latent, heads, key, border);
        constant + growth * border
    });
    let whole = kernel(latent.value(), BLOCKS_OF_HEADS);
    let most = shallower.chain(last).fold(whole, Bytes::max);
    (constant.max(most.saturating_sub(growth * cells)), growth)
}

/// What a prompt of so many tokens brings about, operation by operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restored {
    latent: LatentAttention,
    heads: u32,
    key: TensorType,
    tokens: u64,
    processors: u64,
}

impl Restored {
    pub(super) fn of(
        latent: LatentAttention,
        heads: u32,
        key: TensorType,
        (tokens, processors): (u64, u64),
    ) -> Self {
        Self {
            latent,
            heads,
            key,
            tokens,
            processors,
        }
    }

    /// What one pass restores, and the results of attention to it; or the copy of the cache and the results of attention to that.
    pub(super) fn groups(&self, cells: u64) -> [Group<5>; 2] {
        let latent = &self.latent;
        let results = |length, blocks| partials(length, blocks * waves(cells, self.processors)).get();
        if latent.restores(true, self.tokens) {
            let length = latent
                .heads_a_pass(self.heads, cells)
                .saturating_mul(latent.restored());
            let [vectors, matrix, narrow, product] =
                restored_in_a_pass(latent.rank(), length, self.key.quantised(), cells);
            let restored = [vectors, matrix, narrow, product, 0];
            return [restored, [results(latent.value(), BLOCKS_OF_HEADS), 0, 0, 0, 0]];
        }
        let copy = (copied(latent, self.key) * cells).get();
        [[copy, results(latent.rank(), BLOCKS_OF_VECTORS), 0, 0, 0], [0; 5]]
    }
}

/// What each pass restores: whatever the depth, and for each cell.
fn restored(latent: &LatentAttention, heads: u32, key: TensorType, cells: u64) -> (Bytes, Bytes) {
    let length = latent
        .heads_a_pass(heads, cells)
        .saturating_mul(latent.restored());
    let with = |cells| sum(restored_in_a_pass(latent.rank(), length, key.quantised(), cells));
    (with(0), with(1).saturating_sub(with(0)))
}

/// The cache in f16 where it is of another type.
fn copied(latent: &LatentAttention, key: TensorType) -> Bytes {
    match key.name {
        "f16" => Bytes::ZERO,
        _ => Bytes::new(latent_copy(latent.rank() + latent.rope(), 1)),
    }
}

/// Results of so many blocks for values of this length.
fn partials(length: u64, blocks: u64) -> Bytes {
    Bytes::new(partial_results(Engine::Ik, blocks, COLUMNS, length))
}

/// Processors that the kernel counts on: a power of two, twice over a deep cache.
fn waves(cells: u64, processors: u64) -> u64 {
    let counted = 1 << processors.max(1).ilog2();
    if cells < MANY_CELLS { counted } else { 2 * counted }
}

/// What the products of `ffn_up` and `ffn_gate` take before they become one (`ggml-cuda.cu: ggml_cuda_moe_up_gate_unary,
/// ggml_cuda_up_gate_unary`): both of them for experts, one of them otherwise.
pub(super) fn halves(tensor: &Tensor, columns: u64) -> Bytes {
    let halves = match tensor.name.split('.').nth(2) {
        Some("ffn_up_exps" | "ffn_gate_exps") => 2,
        Some("ffn_up" | "ffn_gate" | "ffn_up_shexp" | "ffn_gate_shexp") => 1,
        _ => 0,
    };
    Bytes::new(4 * halves) * tensor.shape[1] * columns
}

/// Whether there is a kernel for tiles of a type (`mmq.cu: ggml_cuda_should_use_mmq`): for few of those whose rows are interleaved.
pub(super) fn has_tiles(name: &str) -> bool {
    const INTERLEAVED: [&str; 7] = [
        "iq1_s_r4",
        "iq2_k_r4",
        "iq3_k_r4",
        "iq4_k_r4",
        "iq4_ks_r4",
        "iq5_k_r4",
        "iq5_ks_r4",
    ];
    const NONE: [&str; 4] = ["iq1_m", "iq1_bn", "iq2_bn", "nvfp4"];
    let interleaved = ["_r4", "_r8", "_r16"].iter().any(|end| name.ends_with(end));
    if interleaved {
        INTERLEAVED.contains(&name)
    } else {
        !NONE.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::types;

    use super::*;
    use crate::latent::kimi;

    /// On an H200: 132 processors.
    fn most(mode: u32, pass: Option<u64>, key: TensorType, cells: u64) -> Bytes {
        let latent = kimi(mode, pass);
        let (constant, growth) = attention(&latent, 64, key, cells, (512, 132));
        constant + growth * cells
    }

    #[test]
    fn restored_keys_and_values_grow_by_34_kib_a_token_on_kimi_k2() {
        let (constant, each) = restored(&kimi(3, None), 64, types::F16, 32_768);
        assert_eq!((constant, each), (Bytes::mib(16), Bytes::kib(34)));
        assert_eq!(
            restored(&kimi(3, None), 128, types::F16, 32_768).1,
            Bytes::kib(66)
        );
        assert_eq!(
            restored(&kimi(3, None), 64, types::Q8_0, 32_768).1,
            Bytes::kib(35)
        );
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
        assert_eq!(
            most(1, Some(512), types::Q8_0, 60_160),
            results + Bytes::new(1152 * 60_160)
        );
        assert_eq!(most(1, Some(512), types::F16, 2048), results.scaled(1, 2));
    }
}
