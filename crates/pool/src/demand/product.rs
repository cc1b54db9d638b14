//! Computes how much memory matrix multiplications request from the engine's run-time pool.
//!
//! Quantised matrices use MMQ kernels (`tiled`) or, for few columns, a vector kernel. The rest use
//! cuBLAS (`cublas`).

mod cublas;
mod tiled;

pub use cublas::has_fast_halves;
pub use tiled::{Activations, Tiled};

use super::{Capability, DemandGroup, DemandRules, Rules, TURING, VOLTA, times};

/// The first capability with four-byte dot products in one instruction: `common.cuh:GGML_CUDA_CC_DP4A`.
const DP4A: Capability = 610;
/// Columns from which Volta uses cuBLAS: `mmq.cuh:MMQ_DP4A_MAX_BATCH_SIZE`.
const MANY_ON_VOLTA: u64 = 64;

/// The most columns of the vector kernel: `mmvq.cuh:MMVQ_MAX_BATCH_SIZE`.
pub const FEW: u64 = 8;
/// Rows of activations are padded to this: `common.cuh:MATRIX_ROW_PADDING`.
const ROW_PADDING: u64 = 512;

/// Activations of the vector kernel, in `block_q8_1`.
pub fn vectors(width: u64, columns: u64) -> u64 {
    blocks(width, columns, (36, 32))
}

// Source: `mmq.cu:ggml_cuda_mul_mat_q, ggml_cuda_should_use_mmq`, `mmvq.cu:ggml_cuda_mul_mat_vec_q @ b8799,
// b10605`; `mmq.cuh:launch_mul_mat_q, mmq_id_common.cuh`, `mmq.cu:ggml_cuda_should_use_mmq @ ik_llama.cpp
// 8337e4cd`.
/// Class of a matrix's type, which determines the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductKind {
    F32,
    F16,
    Bf16,
    /// Quantised, and the engine has a kernel for its tiles.
    Tiles,
    /// Quantised, and no such kernel exists.
    Blocks,
}

/// Shape of a matrix, or of one of several equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Values of a row.
    pub width: u64,
    pub rows: u64,
    pub kind: ProductKind,
}

impl Matrix {
    /// True if the vector kernel multiplies this number of columns.
    fn goes_by_vectors(self, columns: u64) -> bool {
        columns <= FEW && matches!(self.kind, ProductKind::Tiles | ProductKind::Blocks)
    }

    /// True if cuBLAS multiplies this number of columns.
    pub fn goes_by_cublas(self, rules: Rules, columns: u64) -> bool {
        !self.goes_by_vectors(columns) && !self.goes_by_tiles(rules, columns)
    }

    fn goes_by_tiles(self, rules: Rules, columns: u64) -> bool {
        self.kind == ProductKind::Tiles && has_tiles(rules, columns)
    }
}

/// True if a card multiplies this number of columns with MMQ, where the engine has a kernel for the type.
pub fn has_tiles(rules: Rules, columns: u64) -> bool {
    match rules.capability {
        TURING.. => true,
        // MMQ needs the DP4A instruction.
        ..DP4A => false,
        // Where cuBLAS has FP16 matrix units and MMQ has not, MMQ is for small batches; ik_llama.cpp does not
        // distinguish.
        VOLTA.. => rules.engine == DemandRules::Ik || columns < MANY_ON_VOLTA,
        _ => true,
    }
}

/// Requests of a product of `tokens` columns with a matrix.
pub fn dense(rules: Rules, matrix: Matrix, tokens: u64) -> DemandGroup<3> {
    let Matrix { width, rows, .. } = matrix;
    if matrix.goes_by_vectors(tokens) {
        return [vectors(width, tokens), 0, 0];
    }
    if !matrix.goes_by_tiles(rules, tokens) {
        return cublas::one(rules, matrix, tokens);
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

/// Numbers of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertProduct {
    pub count: u64,
    /// For each token.
    pub used: u64,
    /// A token's experts share its activations (gate and up); behind the first matrix each has its own
    /// (down).
    pub shared: bool,
}

/// Requests of a product of `tokens` columns with the matrices of each token's experts.
pub fn of_experts(rules: Rules, experts: ExpertProduct, matrix: Matrix, tokens: u64) -> DemandGroup<6> {
    let Matrix { width, rows, .. } = matrix;
    // One column for each token and expert.
    let spread = tokens.saturating_mul(experts.used);
    if matrix.goes_by_vectors(tokens) {
        let columns = if experts.shared { tokens } else { spread };
        return [vectors(width, columns), 0, 0, 0, 0, 0];
    }
    if !matrix.goes_by_tiles(rules, tokens) {
        return cublas::one_by_one(rules, matrix, spread, tokens);
    }
    let tiled = Tiled {
        rules,
        kind: Activations::Eight,
        width,
        rows,
        // Shared activations have one row for each token, the others one for each of its experts.
        run: if experts.shared { 1 } else { experts.used },
        columns: spread,
        tokens,
        channels: experts.count,
    };
    tiled.group_of_experts(experts.count)
}

/// Routing lists: source and destination of each column, and the first column of each expert.
pub fn lists(spread: u64, experts: u64) -> DemandGroup<3> {
    // 32-bit indices.
    let places = spread.saturating_mul(4);
    [places, places, experts.saturating_add(1).saturating_mul(4)]
}

/// Bytes of so many columns in blocks of `values`, each of `size` bytes.
fn blocks(width: u64, columns: u64, (size, values): (u64, u64)) -> u64 {
    let width = width.checked_next_multiple_of(ROW_PADDING).unwrap_or(0);
    // Divided last: rows are padded to a multiple of every block's values, so nothing is lost.
    times([columns, width, size]) / values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::H200;

    const NEW: Rules = Rules { engine: DemandRules::Reserving, ..H200 };

    fn matrix(width: u64, rows: u64) -> Matrix {
        Matrix { width, rows, kind: ProductKind::Tiles }
    }

    #[test]
    fn the_sizes_of_an_h200_are_those_it_was_seen_to_ask_for() {
        let dense = |width, rows, tokens| dense(H200, matrix(width, rows), tokens);
        assert_eq!(dense(4096, 1024, 512), [2_377_728, 0, 8_650_752]);
        assert_eq!(dense(14_336, 4096, 512), [8_275_968, 0, 8_650_752]);
        assert_eq!(dense(14_336, 4096, 2), [32_256, 0, 0]);
        assert_eq!(dense(4096, 32_000, 1), [4608, 0, 0]);
    }

    #[test]
    fn whole_tiles_need_no_fixing_but_in_ik() {
        // 32 x 4 tiles on 132 processors are one wave of 97 %; 112 x 4 leave a quarter idle; 33 x 4 are one
        // wave
        let partial = |engine, rows| dense(Rules { engine, ..H200 }, matrix(4096, rows), 512)[2];
        let all = 132 * 128 * 128 * 4;
        for (engine, wave, quarter, whole) in [
            (DemandRules::Reserving, 0, all, 0),
            (DemandRules::Copying, all, all, 0),
            (DemandRules::Ik, all, all, all),
        ] {
            let found = [4096, 14_336, 33 * 128].map(|rows| partial(engine, rows));
            assert_eq!(found, [wave, quarter, whole], "{engine:?}");
        }
    }

    #[test]
    fn tiles_are_as_narrow_as_they_can_be_without_being_more() {
        for (tokens, columns) in [(9, 16), (64, 64), (129, 80), (256, 128), (512, 128), (40, 40), (41, 48)] {
            let partial = dense(H200, matrix(4096, 14_336), tokens)[2];
            assert_eq!(partial, 4 * 132 * columns * 128, "{tokens}");
        }
    }

    #[test]
    fn experts_ask_for_lists_of_who_goes_where() {
        // Qwen3 30B-A3B: 128 experts, 8 of them for each of 512 tokens
        let experts = |shared| ExpertProduct { count: 128, used: 8, shared };
        let quantised = 4096 * 2048 * 144 / 128;
        let lists = [4 * 4096, 4 * 4096, 4 * 129];
        let old = of_experts(H200, experts(true), matrix(2048, 768), 512);
        assert_eq!((&old[..3], old[3]), (&lists[..], quantised + 128 * 144));
        // one column for all of a token's experts: too few for any tile
        assert_eq!(of_experts(NEW, experts(true), matrix(2048, 768), 512)[3], quantised);
        assert_eq!(of_experts(NEW, experts(false), matrix(2048, 768), 512)[3], quantised + 8 * 144);
        assert_eq!(of_experts(NEW, experts(false), matrix(2048, 768), 2)[0], 16 * 2048 * 36 / 32);
    }

    #[test]
    fn matrix_is_copied_in_half_precision_without_tiles() {
        let of = |capability, engine| Rules { capability, engine, ..H200 };
        let whole = matrix(4096, 14_336);
        let [copy, columns, result] = [2 * 4096 * 14_336, 2 * 4096 * 512, 2 * 14_336 * 512];
        let requested = |capability, engine, matrix, tokens| dense(of(capability, engine), matrix, tokens);
        // V100: cuBLAS answers in floats; with fewer columns there are tiles, and ik_llama.cpp has them
        // always
        let new = DemandRules::Reserving;
        assert_eq!(requested(700, new, whole, 512), [copy, columns, 0]);
        assert_ne!(requested(700, new, whole, 63)[0], copy);
        assert_ne!(requested(700, DemandRules::Ik, whole, 512)[0], copy);
        // P100; then P40, which has tiles as later cards do, but slow half precision
        assert_eq!(requested(600, new, whole, 512), [copy, columns, result]);
        assert_ne!(requested(610, new, whole, 512)[0], copy);
        let without = Matrix { kind: ProductKind::Blocks, ..whole };
        assert_eq!(requested(610, new, without, 512), [2 * copy, 0, 0]);
        assert_eq!(requested(900, new, without, 512), [copy, columns, result]);
        assert_eq!(requested(900, new, without, 8)[0], vectors(4096, 8));
    }

    #[test]
    fn experts_without_tiles_go_one_after_another() {
        let experts = ExpertProduct { count: 256, used: 8, shared: true };
        let without = Matrix { kind: ProductKind::Blocks, ..matrix(7168, 2048) };
        let spread = 512 * 8;
        let lists = [8 * spread, 4 * spread * 7168, 4 * spread * 2048];
        let requested = of_experts(NEW, experts, without, 512);
        assert_eq!(requested[..3], lists);
        assert_eq!(requested[3..], cublas::one(NEW, without, 512));
    }
}
