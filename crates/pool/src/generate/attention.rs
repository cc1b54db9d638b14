//! Attention over the cache.
//!
//! Mirrors `fattn.cu:ggml_cuda_get_best_fattn_kernel, ggml_cuda_flash_attn_ext_mma_f16_switch_ncols1/2`,
//! `fattn-common.cuh:launch_fattn @ b8799`, which b10605 still has but for the copies; without flash attention
//! `ggml-cuda.cu:ggml_cuda_mul_mat_batched_cublas @ b8799`.

use super::card::Card;
use super::launch::{cache_parts, stream_blocks};
use super::shape::{Head, Shape};
use super::{Cache, Engine, GenerateError, Operations};

/// The mask is looked through for what can be skipped from so many tokens on.
const MANY: u64 = 1024;

pub(super) fn attention(
    operations: &mut Operations<'_>,
    head: Head,
    tokens: u64,
    cells: u64,
) -> Result<(), GenerateError> {
    let (shape, run) = (operations.shape, operations.run);
    if !run.flash_attention {
        return plain(operations, head, tokens, cells);
    }
    let call = Call {
        card: operations.card,
        engine: run.engine,
        quantised: run.cache == Cache::Quantised,
        heads: shape.heads,
        head,
        tokens,
        cells,
    };
    operations.groups.group(&call.flash())
}

/// Bytes of pool that one cell of cache costs in the layer that costs the most: the f16 copies of K and V.
pub fn cell_bytes(shape: &Shape, engine: Engine, cache: Cache) -> u64 {
    if engine == Engine::Reserving || cache == Cache::F16 || shape.latent.is_some() {
        return 0;
    }
    let copies = |layer| shape.head(layer);
    (0..shape.layers)
        .map(copies)
        .filter(|head| head.window.is_none())
        .map(|head| 2 * 2 * head.count * head.size)
        .max()
        .unwrap_or_default()
}

/// Without flash attention the probabilities are converted for the product with V, which has f16 results.
fn plain(operations: &mut Operations<'_>, head: Head, tokens: u64, cells: u64) -> Result<(), GenerateError> {
    let heads = operations.shape.heads;
    let rows = 2 * tokens * heads;
    operations.groups.group(&[rows * head.size])?;
    operations.groups.group(&[rows * cells, rows * head.size])
}

/// One call of a flash attention kernel.
struct Call<'a> {
    card: &'a Card,
    engine: Engine,
    quantised: bool,
    heads: u64,
    head: Head,
    tokens: u64,
    cells: u64,
}

impl Call<'_> {
    /// Copy of K, copy of V, where the mask ends, partial results, their sums.
    fn flash(&self) -> [u64; 5] {
        if self.is_vector() {
            let [results, sums] = self.vector();
            return [0, 0, 0, results, sums];
        }
        let copies = self.quantised && self.engine != Engine::Reserving;
        let copy = if copies {
            2 * self.head.size * self.head.count * self.cells
        } else {
            0
        };
        let (columns, per_head) = self.columns();
        let mask = if self.tokens >= MANY {
            4 * self.tokens.div_ceil(columns / per_head)
        } else {
            0
        };
        [copy, copy, mask, 0, self.partial()]
    }

    fn is_vector(&self) -> bool {
        let fits = self.head.size <= 256 && self.head.size.is_multiple_of(64);
        let few = match (self.quantised, self.card.ada) {
            (true, true) => self.tokens <= 2,
            (true, false) => self.tokens == 1,
            (false, true) => self.tokens == 1 && !(self.sharing() > 4 && self.cells >= 8192),
            (false, false) => false,
        };
        fits && few
    }

    /// Heads of Q that share one of K and V.
    fn sharing(&self) -> u64 {
        (self.heads / self.head.count.max(1)).max(1)
    }

    /// Columns of a tile, and how many of them are heads that share.
    fn columns(&self) -> (u64, u64) {
        let heads = match self.sharing() {
            0 | 1 => 1,
            2 => 2,
            3 | 4 => 4,
            _ => 8,
        };
        let least = [8, 16, 32, 64]
            .into_iter()
            .find(|columns| self.tokens <= columns / heads);
        (least.unwrap_or(64), heads)
    }

    /// Rows of K that are handled in one go.
    fn rows(&self, columns: u64) -> u64 {
        match (self.head.size, columns) {
            (..=128, 8) => 128,
            (..=128, _) | (..=256, 8) => 64,
            _ => 32,
        }
    }

    /// Partial results of the kernel for many tokens, where tiles are cut.
    fn partial(&self) -> u64 {
        let (columns, per_head) = self.columns();
        let tiles =
            self.tokens.div_ceil(columns / per_head) * self.sharing().div_ceil(per_head) * self.head.count;
        let at_once = self.card.attention_blocks * self.card.processors;
        let waves = tiles.div_ceil(at_once);
        let good = 100 * tiles / (at_once * waves.max(1)) >= 75;
        let blocks = if self.card.ada || !good {
            stream_blocks(
                at_once.min(self.cells.div_ceil(self.rows(columns)) * tiles),
                tiles,
            )
        } else {
            tiles
        };
        if tiles.is_multiple_of(blocks) {
            return 0;
        }
        match self.engine {
            Engine::Ik => blocks * columns * (4 + self.head.size) * 4 * 8,
            Engine::Copying | Engine::Reserving => blocks * columns * (2 + self.head.size / 2) * 8,
        }
    }

    /// The kernel for few tokens: results of several parts of the cache, and the sums of each row.
    fn vector(&self) -> [u64; 2] {
        let per_processor = match self.quantised {
            true => self.card.vector_blocks_quantised,
            false => self.card.vector_blocks,
        };
        let parts = cache_parts(
            self.heads,
            self.cells.div_ceil(128),
            per_processor,
            per_processor * self.card.processors,
        );
        if parts == 1 {
            return [0, 0];
        }
        let rows = parts * self.tokens * self.heads;
        [4 * rows * self.head.size, 8 * rows]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(quantised: bool, tokens: u64, cells: u64) -> [u64; 5] {
        let head = Shape::M8.head(0);
        Call {
            card: &Card::H200,
            engine: Engine::Copying,
            quantised,
            heads: 32,
            head,
            tokens,
            cells,
        }
        .flash()
    }

    #[test]
    fn the_sizes_of_an_h200_are_those_it_was_seen_to_ask_for() {
        assert_eq!(call(true, 2, 256), [0, 0, 0, 65_536, 1024]);
        assert_eq!(call(true, 1, 2304), [0, 0, 0, 131_072, 2048]);
        assert_eq!(call(false, 1, 2304), [0, 0, 0, 196_608, 3072]);
        assert_eq!(call(false, 2, 256), [0, 0, 0, 0, 67_584]);
        assert_eq!(call(true, 512, 512), [1 << 20, 1 << 20, 0, 0, 0]);
        assert_eq!(call(false, 512, 512), [0; 5]);
    }

    #[test]
    fn a_cell_costs_what_the_threads_say() {
        let kib = |shape| cell_bytes(shape, Engine::Copying, Cache::Quantised) >> 10;
        assert_eq!(kib(&Shape::LLAMA3_8B), 4);
        assert_eq!(kib(&Shape::QWEN3_30B_A3B), 2);
        assert_eq!(kib(&Shape::GEMMA3_12B), 8);
        assert_eq!(kib(&Shape::GEMMA4_31B), 8);
        assert_eq!(
            cell_bytes(&Shape::LLAMA3_8B, Engine::Reserving, Cache::Quantised),
            0
        );
    }
}
