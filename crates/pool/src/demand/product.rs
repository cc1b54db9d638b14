//! Products with quantised matrices: the activations in blocks of 8 or 4 bits, and partial tiles.
//!
//! Source: `mmq.cu:ggml_cuda_mul_mat_q`, `mmq.cuh:launch_mul_mat_q, mul_mat_q_case @ b8799`, `mmq-config-*.cuh @ b10605`;
//! `mmvq.cu:ggml_cuda_mul_mat_vec_q @ b8799, b10605`; `mmq.cuh:launch_mul_mat_q, mmq_id_common.cuh @ ik_llama.cpp 8337e4cd`.

use super::{Engine, Group, Rules, TURING, VOLTA, times};

/// Up to so many columns go through the kernel for vectors: `mmvq.cuh:MMVQ_MAX_BATCH_SIZE`.
pub const FEW: u64 = 8;
/// Rows of a tile.
const ROWS: u64 = 128;
/// Rows of activations are padded to this: `common.cuh:MATRIX_ROW_PADDING`.
const ROW_PADDING: u64 = 512;
/// Bytes of a `block_q8_1_mmq`.
const TILE_BLOCK: u64 = 144;

/// What the activations are turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// `block_q8_1_mmq`.
    Eight,
    /// `block_fp4_mmq`, where the card multiplies 4-bit floats by themselves.
    Four,
    /// The same with a scale for each column (NVFP4).
    FourScaled,
}

/// A product with tiles of a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiled {
    pub rules: Rules,
    pub kind: Activations,
    /// Values of a row of the matrix.
    pub width: u64,
    /// Rows of the matrix.
    pub rows: u64,
    /// Columns that follow each other in the activations' own dimension, which their padding depends on.
    pub run: u64,
    /// Columns of activations in all.
    pub columns: u64,
    /// Columns that one channel's tiles divide.
    pub tokens: u64,
    /// Matrices that are multiplied side by side.
    pub channels: u64,
}

/// The activations of so many columns for the kernel for vectors, in `block_q8_1`.
pub fn vectors(width: u64, columns: u64) -> u64 {
    blocks(width, columns, (36, 32))
}

/// A product of `tokens` columns with a matrix of `width` by `rows`.
pub fn dense(rules: Rules, width: u64, rows: u64, tokens: u64) -> Group<3> {
    if tokens <= FEW {
        return [vectors(width, tokens), 0, 0];
    }
    let tiled = Tiled {
        rules,
        kind: Activations::Eight,
        width,
        rows,
        run: tokens,
        columns: tokens,
        tokens,
        channels: 1,
    };
    tiled.group()
}

/// A mixture of experts, of which each token goes to some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    pub count: u64,
    /// For each token.
    pub used: u64,
    /// The activations are shared by a token's experts, as in front of them; behind its first matrix each has its own.
    pub shared: bool,
}

/// A product of `tokens` columns with matrices of `width` by `rows`, each token with those of its experts.
pub fn of_experts(rules: Rules, experts: Experts, width: u64, rows: u64, tokens: u64) -> Group<6> {
    let spread = tokens.saturating_mul(experts.used);
    if tokens <= FEW {
        let columns = if experts.shared { tokens } else { spread };
        return [vectors(width, columns), 0, 0, 0, 0, 0];
    }
    let tiled = Tiled {
        rules,
        kind: Activations::Eight,
        width,
        rows,
        run: if experts.shared { 1 } else { experts.used },
        columns: spread,
        tokens,
        channels: experts.count,
    };
    tiled.group_of_experts(experts.count)
}

/// Who goes where, and where each expert's tokens begin.
pub fn lists(spread: u64, experts: u64) -> Group<3> {
    let places = spread.saturating_mul(4);
    [places, places, experts.saturating_add(1).saturating_mul(4)]
}

impl Tiled {
    /// Activations, their scales, partial tiles.
    pub fn group(&self) -> Group<3> {
        [self.activations(), self.scales(), self.partial()]
    }

    /// The same behind the lists of who goes where.
    pub fn group_of_experts(&self, experts: u64) -> Group<6> {
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

    /// Columns that the activations are padded by: the widest tile of the card, since b10605 the widest that is filled.
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
        let uneven = !old && !self.rows.is_multiple_of(ROWS);
        // since b10605 Volta has the tiles of Ampere
        let wide = self.rules.capability >= if old { TURING } else { VOLTA };
        match (uneven, wide) {
            (false, true) => ALL,
            (false, false) => ALL_NARROW,
            (true, true) => POWERS,
            (true, false) => POWERS_NARROW,
        }
    }

    /// What the multiprocessors leave of tiles that they did not finish.
    fn partial(&self) -> u64 {
        let Rules {
            capability,
            processors,
            engine,
        } = self.rules;
        if capability < VOLTA {
            return 0;
        }
        // the narrowest that needs no more tiles than the widest
        let narrowest = self
            .tiles()
            .iter()
            .copied()
            .min_by_key(|columns| self.tokens.div_ceil(*columns));
        let columns = narrowest.unwrap_or(FEW);
        let tiles = times([
            self.rows.div_ceil(ROWS),
            self.tokens.div_ceil(columns),
            self.channels,
        ]);
        let waves = tiles.div_ceil(processors.max(1)).max(1);
        // since b10605 whole tiles are good enough where nearly all multiprocessors have work in the last wave
        let nearly = tiles.saturating_mul(100) / times([processors.max(1), waves]) >= 90;
        let whole = match engine {
            // for all but experts without a look at the tiles
            Engine::Ik => self.channels > 1 && tiles.is_multiple_of(processors),
            Engine::Copying => tiles.is_multiple_of(processors),
            Engine::Reserving | Engine::Third => nearly || tiles.is_multiple_of(processors),
        };
        if whole {
            0
        } else {
            times([4, processors, columns, ROWS])
        }
    }
}

/// Bytes of so many columns in blocks of `values`, each of `size` bytes.
fn blocks(width: u64, columns: u64, (size, values): (u64, u64)) -> u64 {
    let width = width.checked_next_multiple_of(ROW_PADDING).unwrap_or(0);
    times([columns, width, size]) / values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::H200;

    const NEW: Rules = Rules {
        engine: Engine::Reserving,
        ..H200
    };

    #[test]
    fn the_sizes_of_an_h200_are_those_it_was_seen_to_ask_for() {
        let dense = |width, rows, tokens| dense(H200, width, rows, tokens);
        assert_eq!(dense(4096, 1024, 512), [2_377_728, 0, 8_650_752]);
        assert_eq!(dense(14_336, 4096, 512), [8_275_968, 0, 8_650_752]);
        assert_eq!(dense(14_336, 4096, 2), [32_256, 0, 0]);
        assert_eq!(dense(4096, 32_000, 1), [4608, 0, 0]);
    }

    #[test]
    fn whole_tiles_need_no_fixing_but_in_ik() {
        // 32 x 4 tiles on 132 processors are one wave of 97 %; 112 x 4 leave a quarter idle; 33 x 4 are one wave
        let partial = |engine, rows| dense(Rules { engine, ..H200 }, 4096, rows, 512)[2];
        let all = 132 * 128 * 128 * 4;
        for (engine, wave, quarter, whole) in [
            (Engine::Reserving, 0, all, 0),
            (Engine::Copying, all, all, 0),
            (Engine::Ik, all, all, all),
        ] {
            let found = [4096, 14_336, 33 * 128].map(|rows| partial(engine, rows));
            assert_eq!(found, [wave, quarter, whole], "{engine:?}");
        }
    }

    #[test]
    fn tiles_are_as_narrow_as_they_can_be_without_being_more() {
        for (tokens, columns) in [
            (9, 16),
            (64, 64),
            (129, 80),
            (256, 128),
            (512, 128),
            (40, 40),
            (41, 48),
        ] {
            let partial = dense(H200, 4096, 14_336, tokens)[2];
            assert_eq!(partial, 4 * 132 * columns * 128, "{tokens}");
        }
    }

    #[test]
    fn experts_ask_for_lists_of_who_goes_where() {
        // Qwen3 30B-A3B: 128 experts, 8 of them for each of 512 tokens
        let experts = |shared| Experts {
            count: 128,
            used: 8,
            shared,
        };
        let quantised = 4096 * 2048 * 144 / 128;
        let lists = [4 * 4096, 4 * 4096, 4 * 129];
        let old = of_experts(H200, experts(true), 2048, 768, 512);
        assert_eq!((&old[..3], old[3]), (&lists[..], quantised + 128 * 144));
        // one column for all of a token's experts: too few for any tile
        assert_eq!(of_experts(NEW, experts(true), 2048, 768, 512)[3], quantised);
        assert_eq!(
            of_experts(NEW, experts(false), 2048, 768, 512)[3],
            quantised + 8 * 144
        );
        assert_eq!(
            of_experts(NEW, experts(false), 2048, 768, 2)[0],
            16 * 2048 * 36 / 32
        );
    }
}
