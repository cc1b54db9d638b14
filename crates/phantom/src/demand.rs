//! Pool demand of one node of the engine's graph.
//!
//! DECISION: the requests are made from the tensors themselves, in the order in which the scopes of ggml's
//! functions make and leave them: `Some(bytes)` takes a block, `None` gives the last one back. Which of
//! ggml's functions a node goes to is decided here, by its operands (`product`, `attention`, `order`); what
//! quantised products and attention then ask for is `plimsoll_pool::demand`'s to say, which plans and made
//! traces ask too. What ggml runs as one kernel asks once (`fusion`). Where a size is known to CUB or to the
//! occupancy of a compiled kernel only, it is an estimate, and counted as one ([`Requests::estimated`]).
//!
//! The third generation is taken to ask as b10605 does; it differs in sorting, top-k, convolutions and sparse
//! attention.

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

/// No tensor has more values; with fewer, no sum below passes the end of `u64`.
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

    /// Takes a block, which is given back by [`Requests::give`]; returns how many were taken: none where
    /// nothing is needed.
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

    /// Blocks that are taken in order and given back in reverse. Sizes of 0 stand for what is not needed.
    fn group(&mut self, sizes: &[u64]) {
        let taken = sizes.iter().map(|&bytes| self.take(bytes)).sum();
        self.give(taken);
    }

    fn estimate(&mut self, sizes: &[u64]) {
        self.estimated += 1;
        self.group(sizes);
    }
}

/// Adds what one operation asks for.
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
