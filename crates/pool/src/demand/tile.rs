//! Gives the tile sizes of ggml's attention kernels, and the buffers for the partial results of thread
//! blocks.

use super::attention::{AttentionType, Call, Kernel, STRIDE};
use super::launch::{cache_parts, stream_blocks};
use super::{ADA, DemandGroup, DemandRules, Rules, TURING, times};

/// Tokens from which the mask is scanned for cells that can be skipped.
const MANY: u64 = 1024;
/// Tokens from which ik_llama.cpp always uses stream-k.
const MANY_IN_IK: u64 = 2048;
/// Bound on the parts of a cache, far beyond any engine's.
const MOST_PARTS: u64 = 1 << 16;

// The number of resident blocks depends on the compiled kernel. Tensor-core kernels get the number that the
// sources aim at, the vector kernel that of an H200 trace.
//
// Source: `fattn-common.cuh:launch_fattn @ b8799, b10605`, `fattn.cu:ggml_cuda_flash_attn_ext_mma_f16*`,
// `fattn-mma-f16.cuh:ggml_cuda_fattn_mma_get_config_ampere, _turing`, `fattn-vec.cuh`, `fattn-tile.cuh`;
// `fattn-mma-f16.cuh:launch_fattn_mma, fattn-new-mma.cu:launch_fattn_new_mma @ ik_llama.cpp 8337e4cd`.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionTile {
    /// Tokens and heads of a tile.
    tokens: u64,
    heads: u64,
    /// Cells of one iteration of the kernel.
    cells: u64,
    /// Resident blocks of one multiprocessor.
    at_once: u64,
}

impl AttentionTile {
    pub(super) fn of(rules: Rules, call: &Call, kernel: Kernel) -> Self {
        match kernel {
            Kernel::Vector => Self {
                tokens: call.tokens.clamp(1, 2),
                heads: 1,
                cells: 128,
                at_once: if call.k == AttentionType::Quantised { 2 } else { 3 },
            },
            Kernel::Tile => {
                Self { tokens: call.tokens.clamp(2, 32).next_power_of_two(), heads: 1, cells: 64, at_once: 2 }
            }
            Kernel::Matrix => Self::of_matrix(rules, call),
        }
    }

    fn of_matrix(rules: Rules, call: &Call) -> Self {
        let heads = heads(rules, call);
        let mut columns = [8, 16, 32].into_iter().filter(|columns| *columns >= heads);
        let widest = if rules.capability == TURING { 32 } else { 64 };
        // The smallest tile that holds all tokens, otherwise the widest.
        let columns = columns.find(|columns| call.tokens <= columns / heads).unwrap_or(widest).max(heads);
        // nbatch_fa and occupancy of ggml_cuda_fattn_mma_get_config_ampere, and _turing.
        let (cells, at_once) = match (call.key, columns) {
            (..=128, 8) => (128, 2),
            (..=128, _) => (64, 2),
            (192 | 256, _) if rules.capability == TURING => (64, 2),
            (192 | 256, 8) => (64, 4),
            (_, 8 | 16) => (32, 4),
            (192 | 256, _) | (_, 32) => (32, 2),
            _ => (32, 1),
        };
        Self { tokens: columns / heads, heads, cells, at_once }
    }

    /// Tiles along the tokens, and in all.
    fn count(&self, call: &Call) -> (u64, u64) {
        let along = call.tokens.div_ceil(self.tokens);
        let groups = call.sharing().div_ceil(self.heads);
        let all = times([along, groups, call.kv_heads, call.sequences]);
        (along, all.max(1))
    }

    /// Mask bounds of each piece: its end, in ik_llama.cpp also its begin.
    pub(super) fn mask(&self, engine: DemandRules, call: &Call) -> u64 {
        // The scan pays for long prompts, where much of the causal mask is empty, and for several sequences
        // in one cache.
        let many = call.tokens >= MANY || call.sequences > 1;
        if !call.masked || !call.cells.is_multiple_of(STRIDE) || !many {
            return 0;
        }
        let (along, _) = self.count(call);
        let entry = if engine == DemandRules::Ik { 8 } else { 4 };
        times([entry, along, call.sequences])
    }

    /// Partial results of stream-k, where multiprocessors work on fractions of tiles.
    pub(super) fn cut(&self, rules: Rules, call: &Call) -> u64 {
        if rules.engine == DemandRules::Ik {
            return self.results(rules.engine, call, self.blocks_in_ik(rules, call));
        }
        let (_, tiles) = self.count(call);
        let most = self.most(rules);
        // launch_fattn: use_stream_k = cc >= GGML_CUDA_CC_ADA_LOVELACE || tiles_efficiency_percent < 75.
        let blocks = if rules.capability >= ADA || !self.is_good(rules, tiles) {
            // No more blocks than there are pieces of work.
            let pieces = call.cells.div_ceil(self.cells).saturating_mul(tiles);
            stream_blocks(most.min(pieces), tiles)
        } else {
            tiles
        };
        // Every block computes whole tiles, so nothing has to be combined.
        if blocks == 0 || tiles.is_multiple_of(blocks) {
            return 0;
        }
        self.results(rules.engine, call, blocks)
    }

    /// True if whole tiles fill at least 75 % of the waves of blocks.
    fn is_good(&self, rules: Rules, tiles: u64) -> bool {
        let most = self.most(rules);
        tiles.saturating_mul(100) / times([most, tiles.div_ceil(most)]).max(1) >= 75
    }

    /// Blocks in ik_llama.cpp, which allocates results for every block, and as many blocks as tiles without
    /// stream-k.
    fn blocks_in_ik(&self, rules: Rules, call: &Call) -> u64 {
        let (_, tiles) = self.count(call);
        // ik_llama.cpp has two kernels for matrix units, and chooses by the shape of a head.
        let newer_kernel = call.key != call.value || call.key > 256;
        let streams = if newer_kernel { rules.capability >= ADA } else { call.tokens > MANY_IN_IK };
        if streams || !self.is_good(rules, tiles) { self.most(rules) } else { tiles }
    }

    /// Upper bound of [`cut`](Self::cut) for at most these tokens and any number of cells.
    pub(super) fn cut_at_most(&self, rules: Rules, call: &Call) -> u64 {
        let blocks = if rules.engine == DemandRules::Ik {
            let most = Call { tokens: call.tokens.min(MANY_IN_IK), ..*call };
            self.blocks_in_ik(rules, &most).max(self.most(rules))
        } else {
            self.most(rules)
        };
        self.results(rules.engine, call, blocks)
    }

    fn results(&self, engine: DemandRules, call: &Call, blocks: u64) -> u64 {
        partial_results(engine, blocks, self.tokens * self.heads, call.value)
    }

    /// Blocks on the whole card at once.
    fn most(&self, rules: Rules) -> u64 {
        (self.at_once * rules.processors).max(1)
    }

    /// Buffers of a divided cache: results of the parts, and the sums of each row.
    pub(super) fn parts(&self, rules: Rules, call: &Call) -> DemandGroup<2> {
        let (_, tiles) = self.count(call);
        let most = call.cells.div_ceil(self.cells).min(MOST_PARTS);
        let parts = cache_parts(tiles, most, self.at_once, self.most(rules));
        // One part needs no combination.
        if parts <= 1 {
            return [0, 0];
        }
        let rows = times([call.heads, call.tokens, call.sequences]);
        [times([4, parts, rows, call.value]), times([8, parts, rows])]
    }
}

/// Bytes of the results and sums of these blocks. ik_llama.cpp allocates as many pairs of floats as it needs
/// bytes.
pub fn partial_results(engine: DemandRules, blocks: u64, columns: u64, value: u64) -> u64 {
    let column = match engine {
        DemandRules::Ik => value.saturating_add(4).saturating_mul(4),
        DemandRules::Copying | DemandRules::Reserving | DemandRules::Third => 2 + value / 2,
    };
    times([8, blocks, columns, column])
}

/// Heads in a tile of the matrix kernel, of those that share K and V.
fn heads(rules: Rules, call: &Call) -> u64 {
    let sharing = call.sharing();
    match call.key {
        192 if sharing.is_multiple_of(16) => 16,
        192 => 8,
        320 => 32,
        576 if sharing == 20 => heads_of_twenty(rules, call),
        576 if sharing.is_multiple_of(16) => 16,
        576 => 4,
        _ if !call.together => 1,
        _ => match sharing {
            0 | 1 => 1,
            2 => 2,
            3 | 4 => 4,
            _ => 8,
        },
    }
}

/// The same for 20 heads on one K and V (GLM 4.7 Flash): `fattn.cu:ggml_cuda_flash_attn_ext_mma_f16 @
/// b10605`.
fn heads_of_twenty(rules: Rules, call: &Call) -> u64 {
    match rules.capability {
        1210.. if call.tokens <= 8 => 16,
        1200..1210 if call.tokens <= 4 && call.cells >= 65_536 => 16,
        ADA..1200 if call.tokens <= 4 => 16,
        TURING..ADA if call.tokens <= 4 && call.cells <= 16_384 => 16,
        TURING..ADA if call.tokens <= 4 => 32,
        _ => 4,
    }
}
