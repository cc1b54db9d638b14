//! Computes how much pool memory latent attention (MLA) needs in ik_llama.cpp, which decompresses keys and
//! values from latent vectors.

use super::{DemandGroup, times};

/// Prompts of fewer tokens use the path of single tokens: `build_deepseek2.cpp:pp_opt`.
pub const LEAST_PROMPT: u64 = 128;
/// More heads than any model has.
const MOST_HEADS: u64 = 1 << 10;

/// Heads whose keys and values are restored at once. It is the largest even division whose floats take at
/// most `pass` MiB (in whole MiB, as the engine counts), or one head if none fits. `length` is that of a
/// head's key and value together.
pub fn heads_a_pass(pass: Option<u64>, length: u64, heads: u64, cells: u64) -> u64 {
    let heads = heads.clamp(1, MOST_HEADS);
    // The engine divides to whole MiB before it compares, so a fraction of a MiB above the limit still counts
    // as within.
    let whole = times([4, length, heads, cells]) >> 20;
    match pass {
        // Only divisors: the engine restores the same number of heads in every pass.
        Some(pass) if whole > pass => {
            let fits = |passes: &u64| heads.is_multiple_of(*passes) && whole / passes <= pass;
            (2..heads).find(fits).map_or(1, |passes| heads / passes)
        }
        _ => heads,
    }
}

/// One pass: the latent vectors made contiguous, the matrix in f16, the vectors in f16 where the cache is
/// quantised, and the product in f16. `length` is that of the keys and values of all its heads.
pub fn restored(rank: u64, length: u64, quantised: bool, cells: u64) -> DemandGroup<4> {
    // Source: `graphs/build_deepseek2.cpp` (groups of heads under `-amb`),
    // `ggml-cuda.cu:ggml_cuda_op_mul_mat, ggml_cuda_op_mul_mat_cublas @ ik_llama.cpp 8337e4cd` (copy as
    // floats, product in f16).

    // An f16 cache is multiplied as it is; only a quantised one is converted.
    let narrow = if quantised { times([2, rank, cells]) } else { 0 };
    [times([4, rank, cells]), times([2, rank, length]), narrow, times([2, length, cells])]
}

/// The cache in f16, for queries with the key matrix absorbed: `row` is the length of a latent vector with
/// its rotary part.
pub fn copied(row: u64, cells: u64) -> u64 {
    times([2, row, cells])
}
