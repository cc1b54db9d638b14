//! Products of matrices: what the model's own ask for.
//!
//! A product in floats is cuBLAS's, which gets F16 and BF16 in their own type and gives F16 back
//! (`ggml-cuda.cu: ggml_cuda_mul_mat_cublas_impl @ b10605, ggml_cuda_op_mul_mat_cublas @ b8799`).

use plimsoll_pool::demand::{Rules, product};

use super::ik;
use crate::model::{Model, Tensor};
use crate::plan::reserve::Reserve;

/// Blocks of one product: halves of ik_llama.cpp's fused experts, and the most that one asks for.
pub(super) type Group = [u64; 7];

/// One matrix with a whole micro-batch.
pub(super) fn group(
    tensor: &Tensor,
    model: &Model,
    reserve: &Reserve,
    (rules, fused): (Rules, bool),
) -> Group {
    let [width, rows, matrices, ..] = tensor.shape;
    let tokens = match tensor.name.as_str() {
        "output.weight" => reserve.outputs,
        _ => reserve.tokens,
    };
    let experts = model.hyper.experts.as_ref().filter(|_| matrices > 1);
    let used = experts.map_or(1, |experts| u64::from(experts.used));
    let columns = tokens.saturating_mul(used);
    if !tensor.kind.quantised() {
        return in_floats(tensor, columns);
    }
    let halves = if fused {
        ik::halves(tensor, columns).get()
    } else {
        0
    };
    let mut group = [0; 7];
    group[0] = halves;
    match experts {
        Some(_) => {
            let experts = product::Experts {
                count: matrices,
                used,
                shared: !is_last(tensor),
            };
            let asked = product::of_experts(rules, experts, width, rows, tokens);
            group[1..].copy_from_slice(&asked);
        }
        None => group[1..4].copy_from_slice(&product::dense(rules, width, rows, tokens)),
    }
    group
}

/// Whether each of a token's experts has activations of its own, as behind its first matrix.
fn is_last(tensor: &Tensor) -> bool {
    tensor.name.contains("ffn_down")
}

fn in_floats(tensor: &Tensor, columns: u64) -> Group {
    let [width, rows, ..] = tensor.shape;
    let copy = |length: u64| length.saturating_mul(columns).saturating_mul(2);
    match tensor.kind.name {
        "f16" => [copy(width), copy(rows), 0, 0, 0, 0, 0],
        "bf16" => [copy(width), 0, 0, 0, 0, 0, 0],
        // F32 is multiplied as it is
        _ => [0; 7],
    }
}
