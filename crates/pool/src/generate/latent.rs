//! Multi-head latent attention.
//!
//! Mirrors ik_llama.cpp 8337e4cd: `graphs/build_deepseek2.cpp` (the heads in groups under `-amb`),
//! `ggml-cuda.cu:ggml_cuda_op_mul_mat, ggml_cuda_op_mul_mat_cublas` (the product in f16; the latent vectors are a view
//! that is not contiguous, for which as many floats are taken). llama.cpp keeps to the latent vectors and copies them if
//! they are quantised.

use super::shape::Latent;
use super::{Cache, Engine, GenerateError, Operations};

/// From so many tokens on keys and values are restored (`-mla 2` and 3).
const MANY: u64 = 128;

pub(super) fn attention(
    operations: &mut Operations<'_>,
    latent: &Latent,
    tokens: u64,
    cells: u64,
) -> Result<(), GenerateError> {
    let quantised = operations.run.cache == Cache::Quantised;
    if operations.run.engine != Engine::Ik || tokens < MANY {
        let copies = quantised && operations.run.engine != Engine::Reserving;
        let row = if copies {
            2 * (latent.rank + latent.rope)
        } else {
            0
        };
        return operations.groups.group(&[row * cells]);
    }
    let heads = operations.shape.heads;
    let one_pass = heads_in_a_pass(latent, heads, cells, operations.run.attention_pass);
    let length = latent.nope + latent.value;
    let narrow = if quantised { 2 * latent.rank * cells } else { 0 };
    for _ in 0..heads / one_pass {
        operations.groups.group(&[
            4 * latent.rank * cells,
            2 * latent.rank * one_pass * length,
            narrow,
            2 * one_pass * length * cells,
        ])?;
    }
    Ok(())
}

/// The most heads, in an even division, whose restored keys and values take no more than `pass` MiB; one if none.
fn heads_in_a_pass(latent: &Latent, heads: u64, cells: u64, pass: Option<u64>) -> u64 {
    let whole = (heads * (latent.nope + latent.value) * cells * 4) >> 20;
    match pass {
        Some(pass) if pass > 0 && whole > pass => {
            let passes = (2..heads).find(|passes| heads.is_multiple_of(*passes) && whole / passes <= pass);
            passes.map_or(1, |passes| heads / passes)
        }
        _ => heads,
    }
}
