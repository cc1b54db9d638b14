//! Matrix multiplications that ggml fuses into one kernel, which asks the pool once.
//!
//! For a single token, the gate and up products in front of a gated activation run as one kernel, with their
//! biases and scales. No other fusion changes the requests. Source:
//! `ggml-cuda.cu:ggml_cuda_should_fuse_mul_mat, ggml_cuda_should_fuse_mul_mat_vec_q @ b8799, b10605`.

use plimsoll_pool::demand::Capability;

use crate::kinds::{Glu, Op};
use crate::tensor::View;

/// Most operations between a product and its activation: a scale and a bias.
const BETWEEN: usize = 2;

/// The product of a fused pair that asks the pool for nothing.
pub(crate) fn spared<'a>(activation: View<'a>, capability: Capability) -> Option<View<'a>> {
    const PASCAL: Capability = 600;
    let known = matches!(
        Glu::of(activation.sub_operation()),
        Glu::Swiglu | Glu::Geglu | Glu::SwigluOai
    );
    let swapped = activation.parameter(1) != 0;
    // ggml fuses neither a swapped pair nor anything on Pascal, where fusion is not always faster.
    if activation.op() != Op::Glu || !known || swapped || capability <= PASCAL {
        return None;
    }
    let (gate, up) = (product(activation.source(0)?)?, product(activation.source(1)?)?);
    is_pair(gate, up).then_some(up)
}

/// The product behind a tensor, past its scale and bias.
fn product(mut tensor: View<'_>) -> Option<View<'_>> {
    for _ in 0..=BETWEEN {
        match tensor.op() {
            Op::MulMat | Op::MulMatId => return Some(tensor),
            Op::Add | Op::AddId | Op::Mul => tensor = tensor.source(0)?,
            _ => return None,
        }
    }
    None
}

fn is_pair(gate: View<'_>, up: View<'_>) -> bool {
    let tokens = |product: View<'_>| {
        if product.op() == Op::MulMat {
            product.ne(1)
        } else {
            product.ne(2)
        }
    };
    let (Some(first), Some(second)) = (gate.source(0), up.source(0)) else {
        return false;
    };
    let same = |index| match (gate.source(index), up.source(index)) {
        (Some(a), Some(b)) => a.is(b),
        (a, b) => a.is_none() && b.is_none(),
    };
    let alike = first.raw().kind == second.raw().kind
        && first.raw().ne == second.raw().ne
        && first.raw().nb == second.raw().nb;
    !gate.is(up)
        // The fused kernel is the one for vectors (mmvq), which reads quantised weights for a single token.
        && gate.op() == up.op()
        && same(1)
        && same(2)
        && alike
        && first.is_quantised()
        && tokens(gate) == 1
}
