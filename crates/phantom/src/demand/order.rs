//! Remaining operations: argsort, sum, cumsum, softmax of long rows, triangular solve, SSM scan.
//!
//! Sizes that CUB alone knows are estimated: a sort of pairs keeps a second copy of keys and indices, a sum
//! or a scan a few values for each block.
//! Source: `argsort.cu, top-k.cu, cumsum.cu, sum.cu, mean.cu, softmax.cu, solve_tri.cu, ssm-scan.cu @ b8799,
//! b10605`.

use plimsoll_pool::demand::{Capability, Rules, TURING};

use crate::kinds::Op;
use crate::tensor::View;

use super::Requests;

/// Rows of so many values are sorted in shared memory: `argsort_f32_i32_cuda_bitonic`.
const SHORT: u64 = 1024;
/// Rows are sorted in pieces of so many bytes.
const CHUNK: u64 = 1 << 26;
/// CUB's own, for a sum or a scan of any length met here.
const CUB: u64 = 64 << 10;

pub(super) fn sorted(rules: Rules, op: View<'_>, requests: &mut Requests) -> Option<()> {
    let source = op.source(0)?;
    let (columns, rows) = (source.ne(0), source.rows());
    // b8799 sorts all rows of an argsort at once; later builds bound the copy by sorting in chunks.
    let at_once = if rules.engine.copies() && op.op() == Op::Argsort {
        rows
    } else {
        rows.min((CHUNK / source.nb(1).max(1)).max(1))
    };
    let values = columns.saturating_mul(at_once).saturating_mul(4);
    let taken = if op.op() == Op::TopK {
        requests.take(values)
    } else {
        0
    };
    let chunks = rows.div_ceil(at_once.max(1)).min(1 << 12);
    // CUB's segmented sort takes an offset for each row, and one for the end.
    if columns > SHORT {
        for _ in 0..chunks {
            requests.estimate(&[
                values,
                values,
                4 * (at_once + 1),
                values.saturating_mul(2).saturating_add(CUB),
            ]);
        }
    }
    requests.give(taken);
    Some(())
}

pub(super) fn reduced(op: View<'_>, requests: &mut Requests) -> Option<()> {
    let source = op.source(0)?;
    let single = source.rows() == 1;
    let asks = match op.op() {
        Op::Sum => true,
        Op::Mean => single && source.ne(0) > 1 << 15,
        _ => single && source.ne(0) > SHORT,
    };
    if asks {
        requests.estimate(&[CUB]);
    }
    Some(())
}

/// Long rows alone are shared by all multiprocessors; ggml asks for four times the floats that it needs.
pub(super) fn soft_max(rules: Rules, op: View<'_>, requests: &mut Requests) -> Option<()> {
    let source = op.source(0)?;
    let plain = op.source(1).is_none() && op.source(2).is_none();
    let unscaled = op.float_parameter(0) == 1.0 && op.float_parameter(1) == 0.0;
    // `softmax.cu` takes the cooperative kernel only where few long rows would leave most multiprocessors
    // idle.
    let long = source.ne(0) / source.rows().max(1) > 8192;
    let in_shared_memory =
        source.ne(0).saturating_mul(4).saturating_add(256) <= shared_memory(rules.capability);
    if plain && unscaled && long && !in_shared_memory {
        let sums = rules.processors * 4 * 4;
        requests.group(&[sums, sums]);
    }
    Some(())
}

/// Shared memory of a block: CUDA C++ Programming Guide, table of compute capabilities.
const fn shared_memory(capability: Capability) -> u64 {
    let kib = match capability {
        900..1200 => 227,
        800 | 870 => 163,
        860.. => 99,
        700..750 => 96,
        750..800 => 64,
        _ => 48,
    };
    kib << 10
}

pub(super) fn solved(op: View<'_>, requests: &mut Requests) -> Option<()> {
    let (a, b) = (op.source(0)?, op.source(1)?);
    // Small triangles have a kernel. Larger ones go to `cublasStrsmBatched`, which takes two lists of
    // pointers.
    if a.ne(0) <= 64 && b.ne(0) <= 32 {
        return Some(());
    }
    let batches = a.ne(2).saturating_mul(a.ne(3)).saturating_mul(8);
    requests.group(&[batches, batches]);
    Some(())
}

/// Since b10605 long scans of Mamba 2 are done as products, in chunks of 256 tokens.
pub(super) fn scanned(rules: Rules, op: View<'_>, requests: &mut Requests) -> Option<()> {
    const LENGTH: u64 = 256;
    const FEW: u64 = 128;
    let (state, inputs, decay, b) = (op.source(0)?, op.source(1)?, op.source(3)?, op.source(4)?);
    let (tokens, sequences) = (inputs.ne(2), inputs.ne(3));
    let single = op.parameter(0) <= 1;
    if rules.engine.copies() || rules.capability < TURING || decay.ne(0) != 1 || !single || tokens <= FEW {
        return Some(());
    }
    let (size, width, heads) = (state.ne(0), state.ne(1), state.ne(2));
    let all = heads.saturating_mul(sequences);
    let times = tokens.saturating_mul(all).saturating_mul(4);
    requests.group(&[
        times,
        times,
        (4 * LENGTH * LENGTH)
            .saturating_mul(b.ne(1))
            .saturating_mul(sequences),
        (2 * LENGTH).saturating_mul(width).saturating_mul(all),
        (2 * LENGTH).saturating_mul(size).saturating_mul(all),
        (4 * LENGTH).saturating_mul(size).saturating_mul(all),
        (2 * LENGTH * LENGTH).saturating_mul(all),
    ]);
    Some(())
}
