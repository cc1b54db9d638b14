//! Flash attention: copies of a quantised cache, where the mask ends, partial results.
//!
//! How many blocks of a kernel one multiprocessor holds at once is asked of the driver, which knows the compiled kernel. Taken here
//! is what the kernels aim at for matrix units, and for the vector kernel what an H200 was seen to do (the recorded traces).
//! Source: `fattn-common.cuh:launch_fattn @ b8799, b10605`, `fattn.cu:ggml_cuda_flash_attn_ext_mma_f16*`,
//! `fattn-mma-f16.cuh:ggml_cuda_fattn_mma_get_config_ampere, _turing`, `fattn-vec.cuh`, `fattn-tile.cuh`.

use plimsoll_pool::generate::launch::{cache_parts, stream_blocks};

use crate::attention::{Attention, Kernel};
use crate::cards::{ADA, TURING};
use crate::kinds::Type;
use crate::tensor::View;

use super::{Requests, Rules};

/// `FATTN_KQ_STRIDE`.
const STRIDE: u64 = 256;
/// The mask is looked through for what can be skipped from so many tokens on.
const MANY: u64 = 1024;

pub(super) fn flash(rules: Rules, call: &Attention<'_>, requests: &mut Requests) -> Option<()> {
    let kernel = call.kernel(rules.capability, rules.generation)?;
    let sharing = call.sharing()?;
    let tile = Tile::of(rules, call, kernel, sharing);
    let [k, v] = if rules.is_old() {
        copies(call, kernel)
    } else {
        [0, 0]
    };
    let mask = tile.mask(call);
    let [results, sums] = match kernel {
        Kernel::Matrix => [0, tile.cut(rules, call, sharing)],
        Kernel::Vector | Kernel::Tile => tile.parts(rules, call, sharing),
    };
    let sizes = [k, v, mask, results, sums];
    // what an H200 was seen to do holds for its own kernels
    let known = call.k.ne(0) == 128 && kernel != Kernel::Tile;
    if known {
        requests.group(&sizes)
    } else {
        requests.estimate(&sizes)
    }
    Some(())
}

/// The f16 copies of K and V.
fn copies(call: &Attention<'_>, kernel: Kernel) -> [u64; 2] {
    let needed = |operand: View<'_>| match kernel {
        Kernel::Vector => operand.kind() == Type::F32,
        Kernel::Tile | Kernel::Matrix => operand.kind() != Type::F16,
    };
    let copy = |operand: View<'_>| {
        if needed(operand) {
            operand.elements().saturating_mul(2)
        } else {
            0
        }
    };
    let v = if call.v_is_k() { 0 } else { copy(call.v) };
    [copy(call.k), v]
}

/// The piece of the result that one block computes.
struct Tile {
    /// Tokens, and heads that share K and V.
    tokens: u64,
    heads: u64,
    /// Cells that are handled in one go.
    cells: u64,
    /// Blocks that one multiprocessor holds at once.
    at_once: u64,
}

impl Tile {
    fn of(rules: Rules, call: &Attention<'_>, kernel: Kernel, sharing: u64) -> Self {
        match kernel {
            Kernel::Vector => Self {
                tokens: call.q.ne(1).clamp(1, 2),
                heads: 1,
                cells: 128,
                at_once: if call.k.is_quantised() { 2 } else { 3 },
            },
            Kernel::Tile => Self {
                tokens: call.q.ne(1).next_power_of_two().clamp(2, 32),
                heads: 1,
                cells: 64,
                at_once: 2,
            },
            Kernel::Matrix => Self::of_matrix(rules, call, sharing),
        }
    }

    fn of_matrix(rules: Rules, call: &Attention<'_>, sharing: u64) -> Self {
        let (width, heads) = (call.k.ne(0), heads(rules, call, sharing));
        let tokens = call.q.ne(1);
        let mut columns = [8, 16, 32].into_iter().filter(|columns| *columns >= heads);
        let widest = if rules.capability == TURING { 32 } else { 64 };
        let columns = columns
            .find(|columns| tokens <= columns / heads)
            .unwrap_or(widest)
            .max(heads);
        let (cells, at_once) = match (width, columns) {
            (..=128, 8) => (128, 2),
            (..=128, _) => (64, 2),
            (192 | 256, _) if rules.capability == TURING => (64, 2),
            (192 | 256, 8) => (64, 4),
            (_, 8 | 16) => (32, 4),
            (192 | 256, _) | (_, 32) => (32, 2),
            _ => (32, 1),
        };
        Self {
            tokens: columns / heads,
            heads,
            cells,
            at_once,
        }
    }

    /// Tiles along the tokens, and in all.
    fn count(&self, call: &Attention<'_>, sharing: u64) -> (u64, u64) {
        let along = call.q.ne(1).div_ceil(self.tokens);
        let groups = sharing
            .div_ceil(self.heads)
            .saturating_mul(call.k.ne(2))
            .saturating_mul(call.q.ne(3));
        (along, along.saturating_mul(groups).max(1))
    }

    fn mask(&self, call: &Attention<'_>) -> u64 {
        let many = call.q.ne(1) >= MANY || call.q.ne(3) > 1;
        if call.mask.is_none() || !call.k.ne(1).is_multiple_of(STRIDE) || !many {
            return 0;
        }
        let along = call.q.ne(1).div_ceil(self.tokens);
        4 * along.saturating_mul(call.q.ne(3))
    }

    /// Where multiprocessors work on fractions of tiles.
    fn cut(&self, rules: Rules, call: &Attention<'_>, sharing: u64) -> u64 {
        let (_, tiles) = self.count(call, sharing);
        let most = self.at_once * rules.processors;
        let waves = tiles.div_ceil(most);
        let good = tiles.saturating_mul(100) / most.saturating_mul(waves).max(1) >= 75;
        let blocks = if rules.capability >= ADA || !good {
            let pieces = call.k.ne(1).div_ceil(self.cells).saturating_mul(tiles);
            stream_blocks(most.min(pieces), tiles)
        } else {
            tiles
        };
        if blocks == 0 || tiles.is_multiple_of(blocks) {
            return 0;
        }
        let columns = self.tokens * self.heads;
        blocks
            .saturating_mul(columns)
            .saturating_mul(2 + call.v.ne(0) / 2)
            .saturating_mul(8)
    }

    /// Where the cache is cut into parts whose results are combined.
    fn parts(&self, rules: Rules, call: &Attention<'_>, sharing: u64) -> [u64; 2] {
        let (_, tiles) = self.count(call, sharing);
        let most = call.k.ne(1).div_ceil(self.cells).min(1 << 16);
        let parts = cache_parts(tiles, most, self.at_once, self.at_once * rules.processors);
        if parts <= 1 {
            return [0, 0];
        }
        let results = parts.saturating_mul(call.result.elements()).saturating_mul(4);
        [
            results,
            parts.saturating_mul(call.result.rows()).saturating_mul(8),
        ]
    }
}

/// How many heads that share one of K and V are in a tile of the kernel for matrix units.
fn heads(rules: Rules, call: &Attention<'_>, sharing: u64) -> u64 {
    let (width, tokens) = (call.k.ne(0), call.q.ne(1));
    match width {
        192 if sharing.is_multiple_of(16) => 16,
        192 => 8,
        320 => 32,
        576 if sharing == 20 => heads_of_twenty(rules, call, tokens),
        576 if sharing.is_multiple_of(16) => 16,
        576 => 4,
        _ if !call.shares_well() => 1,
        _ => match sharing {
            0 | 1 => 1,
            2 => 2,
            3 | 4 => 4,
            _ => 8,
        },
    }
}

/// GLM 4.7 Flash.
fn heads_of_twenty(rules: Rules, call: &Attention<'_>, tokens: u64) -> u64 {
    match rules.capability {
        1210.. if tokens <= 8 => 16,
        1200..1210 if tokens <= 4 && call.k.ne(1) >= 65_536 => 16,
        ADA..1200 if tokens <= 4 => 16,
        TURING..ADA if tokens <= 4 && call.k.ne(1) <= 16_384 => 16,
        TURING..ADA if tokens <= 4 => 32,
        _ => 4,
    }
}
