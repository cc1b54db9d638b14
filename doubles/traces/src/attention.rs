//! Generates the requests that one attention layer makes to the engine's memory pool, as part of an
//! allocation trace.
//!
//! Source for attention without flash attention: `ggml-cuda.cu:ggml_cuda_mul_mat_batched_cublas @ b8799`.

use super::shape::{KvHeads, ModelShape};
use plimsoll_pool::demand::attention::{AttentionType, Call};

use super::{CacheShape, GenerateError, Operations};

pub(super) fn attention(
    operations: &mut Operations<'_>,
    head: KvHeads,
    tokens: u64,
    cells: u64,
) -> Result<(), GenerateError> {
    let (shape, run) = (operations.shape, operations.run);
    if !run.flash_attention {
        return plain(operations, head, tokens, cells);
    }
    let call = call(shape, head, run.cache, tokens, cells);
    operations.groups.group(&call.group(operations.rules))
}

fn call(shape: &ModelShape, head: KvHeads, cache: CacheShape, tokens: u64, cells: u64) -> Call {
    let element = match cache {
        CacheShape::F16 => AttentionType::F16,
        CacheShape::Quantised => AttentionType::Quantised,
    };
    Call {
        key: head.size,
        value: head.size,
        heads: shape.heads,
        kv_heads: head.count,
        tokens,
        sequences: 1,
        cells,
        k: element,
        v: element,
        v_is_k: false,
        masked: true,
        together: true,
        biased: false,
    }
}

/// Without flash attention the probabilities are converted for the product with V, which has f16 results.
fn plain(
    operations: &mut Operations<'_>,
    head: KvHeads,
    tokens: u64,
    cells: u64,
) -> Result<(), GenerateError> {
    let heads = operations.shape.heads;
    // Two bytes for each value: the products run in f16.
    let rows = 2 * tokens * heads;
    operations.groups.group(&[rows * head.size])?;
    operations.groups.group(&[rows * cells, rows * head.size])
}
