//! Synthetic tensors for tests without an engine: contiguous ones, and views of them.

use core::ptr::{from_ref, null_mut};

use plimsoll_pool::demand::{DemandRules, Rules};

use crate::abi::Tensor;
use crate::kinds::{Glu, Layout, Op, Type, known};
use crate::tensor::View;

/// Rules of the recorded card, an H200, under a build that reserves the copies behind the result.
pub(crate) const H200: Rules = Rules {
    capability: 900,
    processors: 132,
    engine: DemandRules::Reserving,
};

/// A contiguous tensor.
pub(crate) fn tensor(kind: Type, ne: [i64; 4]) -> Tensor {
    let mut tensor = Tensor {
        kind: known::kind(kind),
        op: known::op(Op::None),
        ne,
        ..Tensor::EMPTY
    };
    let layout = Layout::of(tensor.kind);
    let row = u64::try_from(ne[0]).unwrap_or(0) / layout.block * layout.size;
    let mut next = usize::try_from(row).unwrap();
    tensor.nb[0] = usize::try_from(layout.size).unwrap();
    for (place, values) in tensor.nb.iter_mut().zip(ne).skip(1) {
        *place = next;
        next *= usize::try_from(values.max(1)).unwrap();
    }
    tensor
}

/// An operation on sources that outlive it.
pub(crate) fn operation(op: Op, kind: Type, ne: [i64; 4], sources: &[&Tensor]) -> Tensor {
    let mut made = tensor(kind, ne);
    made.op = known::op(op);
    for (place, source) in made.src.iter_mut().zip(sources) {
        *place = from_ref(*source).cast_mut();
    }
    made
}

/// A gated activation (GLU).
pub(crate) fn gated(glu: Glu, ne: [i64; 4], sources: &[&Tensor]) -> Tensor {
    let mut made = operation(Op::Glu, Type::F32, ne, sources);
    made.op_params[0] = known::glu(glu);
    made
}

/// The same tensor with two dimensions swapped, as `ggml_permute` does.
pub(crate) fn swapped(mut tensor: Tensor, a: usize, b: usize) -> Tensor {
    tensor.ne.swap(a, b);
    tensor.nb.swap(a, b);
    tensor
}

pub(crate) fn view(tensor: &Tensor) -> View<'_> {
    // SAFETY: the tensor and its sources are the test's own.
    unsafe { View::of(tensor) }.unwrap()
}

/// Operands of an attention.
pub(crate) struct Operands {
    pub(crate) q: Tensor,
    pub(crate) k: Tensor,
    pub(crate) v: Tensor,
    pub(crate) mask: Tensor,
}

impl Operands {
    /// Operands with heads of `width` values and a cache of `cells`.
    pub(crate) fn new(cache: Type, width: [i64; 2], heads: [i64; 2], tokens: i64, cells: i64) -> Self {
        let [wide_k, wide_v] = width;
        let [heads, shared] = heads;
        Self {
            q: swapped(tensor(Type::F32, [wide_k, heads, tokens, 1]), 1, 2),
            k: swapped(tensor(cache, [wide_k, shared, cells, 1]), 1, 2),
            v: swapped(tensor(cache, [wide_v, shared, cells, 1]), 1, 2),
            mask: tensor(Type::F16, [cells, tokens, 1, 1]),
        }
    }

    pub(crate) fn attention(&self) -> Tensor {
        let ne = [self.v.ne[0], self.q.ne[2], self.q.ne[1], 1];
        operation(
            Op::FlashAttnExt,
            Type::F32,
            ne,
            &[&self.q, &self.k, &self.v, &self.mask],
        )
    }
}

/// A tensor without any sources.
pub(crate) fn orphan(op: Op) -> Tensor {
    let mut made = operation(op, Type::F32, [64, 4, 1, 1], &[]);
    made.src = [null_mut(); crate::abi::SOURCES];
    made
}
