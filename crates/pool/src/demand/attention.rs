//! Computes how much memory flash attention requests from the engine's run-time pool: copies of a quantised
//! cache, mask bounds, partial results.
//!
//! The engine is assumed to be compiled for the card's own generation.

use super::tile::AttentionTile;
pub use super::tile::partial_results;
use super::{ADA, DemandGroup, DemandRules, Rules, TURING, VOLTA, times};

/// Cells of the cache that kernels take at a time: `FATTN_KQ_STRIDE`.
pub const STRIDE: u64 = 256;

// Source: `fattn.cu:ggml_cuda_get_best_fattn_kernel @ b8799, b10605, ggml 0.26.0`,
// `fattn-common.cuh:launch_fattn @ b8799, b10605`; `fattn.cu:ggml_cuda_flash_attn_ext @ ik_llama.cpp
// 8337e4cd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    Vector,
    Tile,
    /// Matrix units.
    Matrix,
}

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionType {
    F16,
    F32,
    /// BF16.
    Other,
    Quantised,
}

/// Parameters of a flash attention call for which ggml has a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Values of a head of Q and K, and of V.
    pub key: u64,
    pub value: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub tokens: u64,
    /// Sequences that are attended to side by side.
    pub sequences: u64,
    /// Cells of the cache of one sequence.
    pub cells: u64,
    pub k: AttentionType,
    pub v: AttentionType,
    /// V is the front of K, so that one copy does for both.
    pub v_is_k: bool,
    pub masked: bool,
    /// Heads that share one of K and V may be computed together: mask, cells and operands are as that needs
    /// it.
    pub together: bool,
    /// ALiBi.
    pub biased: bool,
}

impl Call {
    /// Heads of Q that share one of K and V.
    pub fn sharing(&self) -> u64 {
        (self.heads / self.kv_heads.max(1)).max(1)
    }

    /// True if the heads that share K and V are computed together.
    pub fn shares(&self) -> bool {
        self.sharing() >= 2 && self.together
    }

    pub fn kernel(&self, rules: Rules) -> Kernel {
        let Rules { capability, engine, .. } = rules;
        let vector = self.key <= 256
            && self.key.is_multiple_of(64)
            && (self.key != 192 || engine.copies())
            && self.cells.is_multiple_of(STRIDE);
        // No matrix kernel is compiled for these head sizes.
        let matrix = !matches!(self.key, 40 | 72);
        // ik_llama.cpp uses the vector kernel for single tokens only, and not where pairs of heads share K
        // and V.
        if engine == DemandRules::Ik && capability >= TURING {
            let alone = self.tokens == 1 && !(self.masked && self.sharing().is_multiple_of(2));
            return if alone && self.key <= 256 && self.key.is_multiple_of(64) && !self.is_quantised() {
                Kernel::Vector
            } else {
                Kernel::Matrix
            };
        }
        if capability >= TURING && matrix {
            let few = vector && self.is_few_for_matrices(rules);
            let alone = vector && !self.shares() && self.tokens == 1;
            return if few || alone { Kernel::Vector } else { Kernel::Matrix };
        }
        // The limits are in columns of a tile, not in tokens: heads that share K and V count each.
        if capability == VOLTA && matrix {
            let columns = self.tokens.saturating_mul(self.in_a_tile(engine));
            return match columns {
                0..=2 if vector => Kernel::Vector,
                0..=16 => Kernel::Tile,
                _ => Kernel::Matrix,
            };
        }
        let few = if self.is_quantised() { self.tokens <= 2 } else { self.tokens == 1 && !self.shares() };
        if vector && few { Kernel::Vector } else { Kernel::Tile }
    }

    fn is_quantised(&self) -> bool {
        [self.k, self.v].contains(&AttentionType::Quantised)
    }

    /// True if a card with matrix units uses the vector kernel.
    fn is_few_for_matrices(&self, rules: Rules) -> bool {
        let newest = rules.capability >= ADA;
        if self.is_quantised() {
            return self.tokens <= if newest { 2 } else { 1 };
        }
        // ggml 0.26.0 added the condition on wide heads.
        let wide = rules.engine == DemandRules::Third && self.key >= 256;
        let matrices_win = self.sharing() > 4 && (wide || self.cells >= 8192);
        newest && self.tokens == 1 && self.sequences == 1 && !matrices_win
    }

    /// Heads in one tile, of those that share K and V.
    fn in_a_tile(&self, engine: DemandRules) -> u64 {
        let most = match self.key {
            320 => 32,
            576 | 192 => 16,
            _ => 8,
        };
        if engine == DemandRules::Third && self.biased {
            return 1;
        }
        let mut together = 1;
        while together < most && self.sharing().is_multiple_of(2 * together) {
            together *= 2;
        }
        together
    }

    /// True if K and V are copied to f16 for this kernel, in whatever memory.
    pub fn copied(&self, kernel: Kernel) -> [bool; 2] {
        // The vector kernel reads quantised values directly; the others read f16 only.
        let needed = |element| match kernel {
            Kernel::Vector => element == AttentionType::F32,
            Kernel::Tile | Kernel::Matrix => element != AttentionType::F16,
        };
        [needed(self.k), needed(self.v) && !self.v_is_k]
    }

    /// The f16 copies of K and V.
    pub fn copies(&self, kernel: Kernel) -> DemandGroup<2> {
        let [k, v] = self.copied(kernel);
        let copy = |needed, width| {
            if needed { times([2, width, self.kv_heads, self.cells, self.sequences]) } else { 0 }
        };
        // Both copies live at the same time.
        [copy(k, self.key), copy(v, self.value)]
    }

    /// Requests in order: copy of K, copy of V, mask bounds, partial results, their sums.
    pub fn group(&self, rules: Rules) -> DemandGroup<5> {
        let kernel = self.kernel(rules);
        let [k, v] = if rules.engine.copies() { self.copies(kernel) } else { [0, 0] };
        // The order of the blocks is the order of allocation in launch_fattn: K_f16, V_f16, KV_max, dst_tmp,
        // dst_tmp_meta.
        let tile = AttentionTile::of(rules, self, kernel);
        let [results, sums] = match kernel {
            Kernel::Matrix => [0, tile.cut(rules, self)],
            Kernel::Vector | Kernel::Tile => tile.parts(rules, self),
        };
        [k, v, tile.mask(rules.engine, self), results, sums]
    }

    /// Upper bound of the matrix kernel's partial results for these tokens or the rest of a prompt, for any
    /// number of cells.
    pub fn cut_at_most(&self, rules: Rules) -> u64 {
        AttentionTile::of(rules, self, Kernel::Matrix).cut_at_most(rules, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::H200;

    /// The recorded model.
    fn call(k: AttentionType, tokens: u64, cells: u64) -> Call {
        Call {
            key: 128,
            value: 128,
            heads: 32,
            kv_heads: 8,
            tokens,
            sequences: 1,
            cells,
            k,
            v: k,
            v_is_k: false,
            masked: true,
            together: true,
            biased: false,
        }
    }

    #[test]
    fn the_sizes_of_an_h200_are_those_it_was_seen_to_ask_for() {
        use AttentionType::{F16, Quantised};
        let group = |k, tokens, cells| call(k, tokens, cells).group(H200);
        assert_eq!(group(Quantised, 2, 256), [0, 0, 0, 65_536, 1024]);
        assert_eq!(group(Quantised, 1, 2304), [0, 0, 0, 131_072, 2048]);
        assert_eq!(group(F16, 1, 2304), [0, 0, 0, 196_608, 3072]);
        assert_eq!(group(F16, 2, 256), [0, 0, 0, 0, 67_584]);
        assert_eq!(group(Quantised, 512, 512), [1 << 20, 1 << 20, 0, 0, 0]);
        assert_eq!(group(F16, 512, 512), [0; 5]);
    }

    #[test]
    fn a_last_micro_batch_of_a_prompt_leaves_tiles_cut() {
        // b8799 on an H200, 55 016 and 55 272 tokens of q8_0: 224 and 226 MiB
        let call = call(AttentionType::Quantised, 512, 55_296);
        assert_eq!(call.cut_at_most(H200), 8_921_088);
        for tokens in 33..=512 {
            let tail = Call { tokens, ..call };
            assert!(tail.group(H200)[4] <= 8_921_088, "{tokens}");
        }
    }

    #[test]
    fn ik_asks_for_the_results_of_every_block() {
        let ik = Rules { engine: DemandRules::Ik, ..H200 };
        // 256 tiles fill a wave of 264 blocks; 1024 are blocks of their own; beyond 2048 tokens it streams
        let block = 64 * (4 + 128) * 4 * 8;
        for (tokens, blocks) in [(512, 256), (2048, 1024), (4096, 264), (64, 264)] {
            let call = call(AttentionType::F16, tokens, 4096);
            assert_eq!(call.group(ik)[4], blocks * block, "{tokens}");
        }
        assert_eq!(call(AttentionType::F16, 4096, 4096).cut_at_most(ik), 1024 * block);
        assert_eq!(call(AttentionType::F16, 64, 4096).cut_at_most(ik), 264 * block);
    }

    #[test]
    fn absurd_calls_ask_for_absurd_sizes_and_no_panic() {
        for value in [0, 1, u64::MAX] {
            let call = Call {
                key: value,
                value,
                heads: value,
                kv_heads: value,
                tokens: value,
                sequences: value,
                cells: value,
                ..call(AttentionType::Quantised, 1, 1)
            };
            for capability in [0, VOLTA, TURING, 900] {
                let rules = Rules { capability, processors: value >> 8, ..H200 };
                call.group(rules);
                call.cut_at_most(rules);
            }
        }
    }
}
