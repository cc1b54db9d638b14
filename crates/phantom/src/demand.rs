//! Pool demand of one node of the engine's graph.
//!
//! DECISION: the requests are derived from the tensors themselves, in the order in which the scopes in ggml's
//! functions open and close: `Some(bytes)` takes a block, `None` gives the last one back. This module chooses
//! ggml's function for a node by its operands (`product`, `attention`, `order`). The requests of quantised
//! products and attention come from `plimsoll_pool::demand`, which plans and synthetic traces use too.
//! Operations that ggml fuses into one kernel ask once (`fusion`). A size that only CUB or the occupancy of a
//! compiled kernel determines is an estimate, and is counted as one ([`Requests::estimated`]).
//!
//! The third generation is assumed to ask as b10605 does; it differs in sorting, top-k, convolutions and
//! sparse attention.

use alloc::vec::Vec;

use plimsoll_pool::demand::Rules;

use crate::abi::SOURCES;
use crate::attention::Attention;
use crate::kinds::Op;
use crate::tensor::View;

mod attention;
pub(crate) mod fusion;
mod order;
mod product;
#[cfg(test)]
mod tests;

/// Bound on the values of a tensor, which keeps every sum below within `u64`.
const MOST_VALUES: u64 = 1 << 40;

/// Requests of one or more operations, in order.
#[derive(Default)]
pub(crate) struct Requests {
    steps: Vec<Option<u64>>,
    /// Number of blocks with an estimated size.
    pub(crate) estimated: u64,
    /// Number of products by cuBLAS; the first one allocates its workspace.
    pub(crate) cublas: u64,
}

impl Requests {
    pub(crate) fn steps(&self) -> &[Option<u64>] {
        &self.steps
    }

    pub(crate) fn clear(&mut self) {
        self.steps.clear();
        self.estimated = 0;
        self.cublas = 0;
    }

    /// Takes a block, to be given back by [`Requests::give`]. Returns the number of blocks taken: 0 for an
    /// empty request.
    fn take(&mut self, bytes: u64) -> usize {
        if bytes == 0 {
            return 0;
        }
        self.steps.push(Some(bytes));
        1
    }

    fn give(&mut self, blocks: usize) {
        self.steps.extend(core::iter::repeat_n(None, blocks));
    }

    /// Takes blocks in order and gives them back in reverse. Sizes of 0 are skipped.
    fn group(&mut self, sizes: &[u64]) {
        let taken = sizes.iter().map(|&bytes| self.take(bytes)).sum();
        self.give(taken);
    }

    fn estimate(&mut self, sizes: &[u64]) {
        self.estimated += 1;
        self.group(sizes);
    }
}

/// Adds the requests of one operation.
pub(crate) fn of(rules: Rules, op: View<'_>, requests: &mut Requests) {
    let sources = (0..SOURCES).filter_map(|index| op.source(index));
    if op.elements() == 0 || sources.chain([op]).any(|operand| operand.extent() > MOST_VALUES) {
        return;
    }
    // a source that is missing is ggml's death and no request of ours
    let _ = match op.op() {
        Op::MulMat => product::plain(rules, op, requests),
        Op::MulMatId => product::of_experts(rules, op, requests),
        Op::FlashAttnExt => Attention::of(op).and_then(|call| attention::flash(rules, &call, requests)),
        Op::Argsort | Op::TopK => order::sorted(rules, op, requests),
        Op::Cumsum | Op::Sum | Op::Mean => order::reduced(op, requests),
        Op::SoftMax => order::soft_max(rules, op, requests),
        Op::SolveTri => order::solved(op, requests),
        Op::SsmScan => order::scanned(rules, op, requests),
        _ => Some(()),
    };
}
