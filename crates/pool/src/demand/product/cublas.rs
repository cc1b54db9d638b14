//! Computes how much pool memory cuBLAS products need: copies of the matrices in a type that cuBLAS can
//! multiply.

use super::super::{Capability, DemandGroup, Rules, VOLTA, times};
use super::{Matrix, ProductKind};

/// First capability with fast half precision; 6.1 (consumer Pascal) computes halves at 1/64 of the rate.
const PASCAL: Capability = 600;
const SLOW: Capability = 610;

/// True if the card computes fast in half precision.
pub fn has_fast_halves(capability: Capability) -> bool {
    capability >= PASCAL && capability != SLOW
}

/// Requests for one matrix: its copy, the copy of the columns, and the result where it is not in floats.
pub(super) fn one(rules: Rules, matrix: Matrix, columns: u64) -> DemandGroup<3> {
    // Source: `ggml-cuda.cu:ggml_cuda_op_mul_mat_cublas, ggml_cuda_mul_mat_id @ b8799`,
    // `ggml_cuda_mul_mat_cublas_impl @ b10605`; `common.cuh:fast_fp16_available`.
    let copy = |size| times([matrix.width, matrix.rows, size]);
    let (inputs, result) = (times([matrix.width, columns, 2]), times([matrix.rows, columns, 2]));
    // On Volta the engine asks cuBLAS for results in floats directly.
    let in_halves = if rules.capability == VOLTA { 0 } else { result };
    match matrix.kind {
        // cublasSgemm takes everything as it is.
        ProductKind::F32 => [0; 3],
        ProductKind::Bf16 if rules.engine.copies() => [0, inputs, result],
        ProductKind::Bf16 => [0, inputs, 0],
        ProductKind::F16 | ProductKind::Tiles | ProductKind::Blocks if !has_fast_halves(rules.capability) => {
            [copy(4), 0, 0]
        }
        ProductKind::F16 => [0, inputs, in_halves],
        ProductKind::Tiles | ProductKind::Blocks => [copy(2), inputs, in_halves],
    }
}

/// Requests for experts one after another: routing, all columns and all results side by side, and one
/// expert's product. The number of tokens of an expert depends on the values; the worst case is assumed, all
/// tokens to one expert.
pub(super) fn one_by_one(rules: Rules, matrix: Matrix, spread: u64, tokens: u64) -> DemandGroup<6> {
    let halves = matches!(matrix.kind, ProductKind::F16 | ProductKind::Bf16);
    // Float matrices other than f16 and bf16 take their columns as floats; the copy happens per expert.
    let size = if halves { 2 } else { 4 };
    let [copy, inputs, result] = one(rules, matrix, tokens);
    [
        times([8, spread]),
        times([spread, matrix.width, size]),
        times([spread, matrix.rows, 4]),
        copy,
        // The columns were gathered in the type of the matrix already.
        if halves { 0 } else { inputs },
        result,
    ]
}
