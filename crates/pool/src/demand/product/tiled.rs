//! Computes how much pool memory MMQ needs (ggml's kernels for quantised matrices): quantised activations,
//! and the stream-k fix-up buffer.
//!
//! Source: `mmq.cuh:launch_mul_mat_q, mul_mat_q_case @ b8799`, `mmq-config-*.cuh @ b10605`.

use super::super::{DemandGroup, DemandRules, Rules, TURING, VOLTA, times};
use super::{FEW, blocks, lists};

/// Rows of a tile.
const ROWS: u64 = 128;
/// Bytes of a `block_q8_1_mmq`.
const TILE_BLOCK: u64 = 144;

/// Format of the quantised activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// `block_q8_1_mmq`.
    Eight,
    /// `block_fp4_mmq`, where the card multiplies 4-bit floats by themselves.
    Four,
    /// The same with a scale for each column (NVFP4).
    FourScaled,
}

/// A matrix product computed in tiles of a quantised matrix (MMQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiled {
    pub rules: Rules,
    pub kind: Activations,
    /// Values of a row of the matrix.
    pub width: u64,
    /// Rows of the matrix.
    pub rows: u64,
    /// Columns in the first dimension of the activations, on which their padding depends.
    pub run: u64,
    /// Columns of activations in all.
    pub columns: u64,
    /// Columns of one channel.
    pub tokens: u64,
    /// Matrices that are multiplied side by side.
    pub channels: u64,
}

impl Tiled {
    /// Activations, their scales, partial tiles.
    pub fn group(&self) -> DemandGroup<3> {
        [self.activations(), self.scales(), self.partial()]
    }

    /// The same behind the routing lists.
    pub fn group_of_experts(&self, experts: u64) -> DemandGroup<6> {
        let [first, second, bounds] = lists(self.columns, experts);
        let [activations, scales, partial] = self.group();
        [first, second, bounds, activations, scales, partial]
    }

    fn activations(&self) -> u64 {
        let block = match self.kind {
            Activations::Eight => (TILE_BLOCK, 128),
            Activations::Four | Activations::FourScaled => (TILE_BLOCK, 256),
        };
        blocks(self.width, self.columns, block).saturating_add(self.padding() * TILE_BLOCK)
    }

    fn scales(&self) -> u64 {
        match self.kind {
            Activations::FourScaled => self.columns.saturating_mul(4),
            Activations::Eight | Activations::Four => 0,
        }
    }

    /// Padding columns of the activations: the widest tile of the card, since b10605 the widest that is
    /// filled.
    fn padding(&self) -> u64 {
        if self.rules.engine.copies() {
            return if self.rules.capability >= TURING { 128 } else { 64 };
        }
        let filled = |columns: &&u64| **columns <= self.run;
        self.tiles().iter().rev().find(filled).copied().unwrap_or(0)
    }

    /// The widths that tiles can have.
    fn tiles(&self) -> &'static [u64] {
        const ALL: &[u64] = &[8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128];
        const ALL_NARROW: &[u64] = &[8, 16, 24, 32, 40, 48, 64];
        const POWERS: &[u64] = &[8, 16, 32, 64, 128];
        const POWERS_NARROW: &[u64] = &[8, 16, 32, 64];
        let old = self.rules.engine.copies();
        // Since b10605 rows that do not fill tiles need kernels with bounds checks, which exist for powers of
        // two only.
        let uneven = !old && !self.rows.is_multiple_of(ROWS);
        // Since b10605 Volta has the tiles of Ampere.
        let wide = self.rules.capability >= if old { TURING } else { VOLTA };
        match (uneven, wide) {
            (false, true) => ALL,
            (false, false) => ALL_NARROW,
            (true, true) => POWERS,
            (true, false) => POWERS_NARROW,
        }
    }

    /// Stream-k fix-up buffer: partial tiles, one for each multiprocessor.
    fn partial(&self) -> u64 {
        let Rules { capability, processors, engine } = self.rules;
        // Stream-k needs Volta; older cards compute whole tiles.
        if capability < VOLTA {
            return 0;
        }
        // The narrowest width that needs no more tiles than the widest: mmq.cuh:mul_mat_q_case.
        let narrowest = self.tiles().iter().copied().min_by_key(|columns| self.tokens.div_ceil(*columns));
        let columns = narrowest.unwrap_or(FEW);
        let tiles = times([self.rows.div_ceil(ROWS), self.tokens.div_ceil(columns), self.channels]);
        let waves = tiles.div_ceil(processors.max(1)).max(1);
        // Since b10605 whole tiles are used where at least 90 % of the multiprocessors have work in the last
        // wave.
        let nearly = tiles.saturating_mul(100) / times([processors.max(1), waves]) >= 90;
        let whole = match engine {
            // ik_llama.cpp tests the tiles for experts only, and allocates the buffer in all other cases.
            DemandRules::Ik => self.channels > 1 && tiles.is_multiple_of(processors),
            DemandRules::Copying => tiles.is_multiple_of(processors),
            DemandRules::Reserving | DemandRules::Third => nearly || tiles.is_multiple_of(processors),
        };
        if whole {
            0
        } else {
            // One float for each element of a tile, one tile for each multiprocessor.
            times([4, processors, columns, ROWS])
        }
    }
}
