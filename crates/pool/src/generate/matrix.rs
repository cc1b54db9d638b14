//! Products with quantised matrices: the activations in blocks of 8 bits, and partial tiles.
//!
//! Mirrors `mmq.cu:ggml_cuda_mul_mat_q`, `mmq.cuh:launch_mul_mat_q, mul_mat_q_case`, `mmvq.cu:ggml_cuda_mul_mat_vec_q @
//! b8799`, and the change of `launch_mul_mat_q` by b10605.

use alloc::vec;
use alloc::vec::Vec;

use super::Engine;
use super::card::Card;
use super::shape::Experts;

/// Up to so many tokens go through the kernel for vectors: `mmvq.cuh:MMVQ_MAX_BATCH_SIZE`.
const FEW: u64 = 8;
/// Largest tile, in columns and in rows.
const TILE: u64 = 128;
/// Rows of activations are padded to this: `common.cuh:MATRIX_ROW_PADDING`.
const ROW_PADDING: u64 = 512;
/// Bytes of 128 activations in `block_q8_1_mmq`, and of 32 in `block_q8_1`.
const TILE_BLOCK: u64 = 144;
const VECTOR_BLOCK: u64 = 36;

/// A product of `tokens` columns with a matrix of `width` by `rows`.
pub(super) fn dense(card: &Card, engine: Engine, width: u64, rows: u64, tokens: u64) -> Vec<u64> {
    if tokens <= FEW {
        return vec![vectors(width, tokens)];
    }
    vec![tiles(width, tokens), partial(card, engine, rows, tokens, 1)]
}

/// The same where each token goes to some of many matrices. Activations are `shared` by them in front of the experts, and
/// each expert's own behind its first matrix.
pub(super) fn experts(
    card: &Card,
    engine: Engine,
    experts: &Experts,
    width: u64,
    rows: u64,
    tokens: u64,
    shared: bool,
) -> Vec<u64> {
    let spread = tokens * experts.used;
    if tokens <= FEW {
        return vec![vectors(width, if shared { tokens } else { spread })];
    }
    vec![
        4 * spread,
        4 * spread,
        4 * (experts.count + 1),
        tiles(width, spread),
        partial(card, engine, rows, tokens, experts.count),
    ]
}

fn vectors(width: u64, tokens: u64) -> u64 {
    tokens * width.next_multiple_of(ROW_PADDING) * VECTOR_BLOCK / 32
}

fn tiles(width: u64, columns: u64) -> u64 {
    columns * width.next_multiple_of(ROW_PADDING) * TILE_BLOCK / TILE + TILE * TILE_BLOCK
}

/// What the multiprocessors leave of tiles that they did not finish.
fn partial(card: &Card, engine: Engine, rows: u64, tokens: u64, matrices: u64) -> u64 {
    let columns = tile_columns(tokens);
    let tiles = rows.div_ceil(TILE) * tokens.div_ceil(columns) * matrices;
    let waves = tiles.div_ceil(card.processors).max(1);
    // whole tiles are good enough where nearly all multiprocessors have work in the last wave
    let whole = engine == Engine::Reserving && 100 * tiles / (card.processors * waves) >= 90;
    if whole || tiles.is_multiple_of(card.processors) {
        return 0;
    }
    4 * card.processors * columns * TILE
}

/// The fewest columns that need no more tiles than the most columns do.
fn tile_columns(tokens: u64) -> u64 {
    let allowed = |columns: &u64| columns.is_multiple_of(if *columns >= 48 { 16 } else { 8 });
    let columns = (8..=TILE).step_by(8).filter(allowed);
    columns
        .min_by_key(|&columns| tokens.div_ceil(columns))
        .unwrap_or(TILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_an_h200_are_those_it_was_seen_to_ask_for() {
        let dense = |width, rows, tokens| dense(&Card::H200, Engine::Copying, width, rows, tokens);
        assert_eq!(dense(4096, 1024, 512), [2_377_728, 8_650_752]);
        assert_eq!(dense(14_336, 4096, 512), [8_275_968, 8_650_752]);
        assert_eq!(dense(14_336, 4096, 2), [32_256]);
        assert_eq!(dense(4096, 32_000, 1), [4608]);
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
            assert_eq!(tile_columns(tokens), columns, "{tokens}");
        }
    }
}
