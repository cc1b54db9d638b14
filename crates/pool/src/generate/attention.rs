//! Requests that one attention layer makes to the memory pool, for a generated trace.
//!
//! Source for attention without flash attention: `ggml-cuda.cu:ggml_cuda_mul_mat_batched_cublas @ b8799`.

use super::shape::{KvHeads, ModelShape};
use super::{CacheShape, DemandRules, GenerateError, Operations};
use crate::demand::attention::{AttentionType, Call, Kernel};

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

/// Bytes of pool that one cell of cache costs in the layer that costs the most: the f16 copies of K and V.
pub fn cell_bytes(shape: &ModelShape, engine: DemandRules, cache: CacheShape) -> u64 {
    if !engine.copies() || shape.latent.is_some() {
        return 0;
    }
    let heads = (0..shape.layers).map(|layer| shape.head(layer));
    let copies = |head| call(shape, head, cache, 1, 1).copies(Kernel::Matrix);
    heads
        // Windowed layers stop growing with the context, so they never decide.
        .filter(|head| head.window.is_none())
        .map(|head| copies(head).into_iter().sum())
        .max()
        .unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_costs_what_the_threads_say() {
        let kib = |shape| cell_bytes(shape, DemandRules::Copying, CacheShape::Quantised) >> 10;
        assert_eq!(kib(&ModelShape::LLAMA3_8B), 4);
        assert_eq!(kib(&ModelShape::QWEN3_30B_A3B), 2);
        assert_eq!(kib(&ModelShape::GEMMA3_12B), 8);
        assert_eq!(kib(&ModelShape::GEMMA4_31B), 8);
        assert_eq!(cell_bytes(&ModelShape::LLAMA3_8B, DemandRules::Reserving, CacheShape::Quantised), 0);
    }
}
