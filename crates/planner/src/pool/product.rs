//! Computes the temporary GPU memory of the model's matrix multiplications.

use plimsoll_model::{Model, Tensor, TensorType};
use plimsoll_pool::demand::product::{self, Matrix, ProductKind};
use plimsoll_pool::demand::{DemandRules, Rules};

use crate::Reserve;
use crate::pool::ik;

/// Pool blocks of one matrix product: the halves of ik_llama.cpp's fused experts, then the product's own.
pub(super) type ProductBlocks = [u64; 7];

/// The blocks of one matrix with a whole micro-batch.
pub(super) fn group(
    tensor: &Tensor,
    model: &Model,
    reserve: &Reserve,
    rules: Rules,
    fused: bool,
) -> ProductBlocks {
    let matrices = tensor.shape[2];
    let tokens = tokens(tensor, reserve);
    // Only a stack of matrices belongs to experts: their router and shared expert are plain ones.
    let experts = model.hyper.experts.as_ref().filter(|_| matrices > 1);
    let used = experts.map_or(1, |experts| u64::from(experts.used));
    let columns = tokens.saturating_mul(used);
    let matrix = matrix(tensor, rules.engine);
    // Quantised matrices alone have the fused kernel.
    let halves = if fused && tensor.kind.quantised() { ik::halves(tensor, columns).get() } else { 0 };
    let mut group = [0; 7];
    group[0] = halves;
    match experts {
        Some(_) => {
            let experts = product::ExpertProduct { count: matrices, used, shared: !is_last(tensor) };
            let requested = product::of_experts(rules, experts, matrix, tokens);
            group[1..].copy_from_slice(&requested);
        }
        None => group[1..4].copy_from_slice(&product::dense(rules, matrix, tokens)),
    }
    group
}

/// True if cuBLAS multiplies the matrix with a whole micro-batch.
pub(super) fn is_for_cublas(tensor: &Tensor, reserve: &Reserve, rules: Rules) -> bool {
    matrix(tensor, rules.engine).goes_by_cublas(rules, tokens(tensor, reserve))
}

fn matrix(tensor: &Tensor, engine: DemandRules) -> Matrix {
    let [width, rows, ..] = tensor.shape;
    Matrix { width, rows, kind: kind(tensor.kind, engine) }
}

/// Columns that the matrix is multiplied with at most.
fn tokens(tensor: &Tensor, reserve: &Reserve) -> u64 {
    match tensor.name.as_str() {
        // Only rows that a request can ask for reach the output matrix.
        "output.weight" => reserve.outputs_requested,
        _ => reserve.tokens,
    }
}

/// True if each of a token's experts has separate activations, as after its first matrix.
fn is_last(tensor: &Tensor) -> bool {
    tensor.name.contains("ffn_down")
}

/// The kernel that multiplies a matrix of this type (`mmq.cu: ggml_cuda_should_use_mmq @ b8799, b10605`).
fn kind(of: TensorType, engine: DemandRules) -> ProductKind {
    let tiles = match engine {
        DemandRules::Ik => ik::has_tiles(of.name),
        _ => !["iq1_m", "tq1_0", "tq2_0"].contains(&of.name),
    };
    match of.name {
        "f16" => ProductKind::F16,
        "bf16" => ProductKind::Bf16,
        _ if !of.quantised() => ProductKind::F32,
        _ if tiles => ProductKind::Tiles,
        _ => ProductKind::Blocks,
    }
}
