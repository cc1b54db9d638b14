//! Computes how much temporary memory the operations of ggml's CUDA backend request from its pool.
//!
//! They give the bytes of each request, in order, for a card and a build of the engine.

pub mod attention;
pub mod latent;
mod launch;
pub mod product;
mod tile;

/// A compute capability as ggml writes it: 890 for 8.9. The source of every constant is `common.cuh @
/// b10605`.
pub type Capability = u32;

pub const VOLTA: Capability = 700;
pub const TURING: Capability = 750;
pub const ADA: Capability = 890;

// The blocks of one operation form a `DemandGroup`: allocated in order, freed in reverse.
/// Engine builds that differ in their pool requests, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
// Plain numbers, because the trace generator (`generate`) and the planner use these formulas.
pub enum DemandRules {
    /// ik_llama.cpp: copies a quantised cache in the pool; turns the latent cache back into keys and values.
    Ik,
    /// llama.cpp before PR 23907 (about b9400; b8799): copies a quantised cache in the pool.
    Copying,
    /// llama.cpp since then (b10605): the copies are in the compute buffer.
    Reserving,
    /// Interface version 3 of ggml's backends (ggml 0.26.0). Its requests are those of b10605, but it chooses
    /// some kernels differently.
    Third,
}

impl DemandRules {
    /// True if the f16 copies of a quantised cache come from the pool.
    pub const fn copies(self) -> bool {
        matches!(self, Self::Ik | Self::Copying)
    }
}

/// Card and engine build, which determine the kernels that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub capability: Capability,
    /// Multiprocessors.
    pub processors: u64,
    pub engine: DemandRules,
}

/// Sizes of the blocks of one operation: allocated in order and freed in reverse. A size of 0 means no block.
pub type DemandGroup<const N: usize> = [u64; N];

/// The saturating product of many factors.
fn times<const N: usize>(factors: [u64; N]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// The card and the build of the recordings in `data/traces`.
#[cfg(test)]
const H200: Rules = Rules { capability: 900, processors: 132, engine: DemandRules::Copying };
