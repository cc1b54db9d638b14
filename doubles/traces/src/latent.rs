//! Generates the requests that one layer with latent attention (MLA) makes to the engine's memory pool, as
//! part of an allocation trace.
//!
//! ik_llama.cpp decompresses keys and values from the latent vectors. llama.cpp uses the latent vectors
//! directly, or an f16 copy of them if they are quantised.

use plimsoll_pool::demand::latent::{LEAST_PROMPT, copied, heads_a_pass, restored};

use super::shape::Latent;
use super::{CacheShape, DemandRules, GenerateError, Operations};

pub(super) fn attention(
    operations: &mut Operations<'_>,
    latent: &Latent,
    tokens: u64,
    cells: u64,
) -> Result<(), GenerateError> {
    let run = operations.run;
    let quantised = run.cache == CacheShape::Quantised;
    // Only ik_llama.cpp restores, and only for prompts: for few tokens the absorbed form needs less work.
    if run.engine != DemandRules::Ik || tokens < LEAST_PROMPT {
        let row = if quantised && run.engine.copies() { latent.rank + latent.rope } else { 0 };
        return operations.groups.group(&[copied(row, cells)]);
    }
    let heads = operations.shape.heads;
    let length = latent.nope + latent.value;
    let pass = run.attention_pass.filter(|&pass| pass > 0);
    let one_pass = heads_a_pass(pass, length, heads, cells);
    for _ in 0..heads / one_pass {
        let group = restored(latent.rank, one_pass * length, quantised, cells);
        operations.groups.group(&group)?;
    }
    Ok(())
}
