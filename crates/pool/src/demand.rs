//! Pool demand of the operations of ggml's CUDA backend: bytes of each request, in order.
//!
//! DECISION: one home for these formulas, as functions of plain numbers. The phantom backend (which sees real
//! graphs), the generator ([`generate`](crate::generate), which knows a model's shape) and the planner (which
//! reads a model's header) all call them, so that they cannot disagree. An operation's blocks are one
//! [`Group`]: allocated in order, freed in reverse. Sums and products saturate, so that no operand overflows.
//!
//! Which kernel runs, and so which blocks are needed, follows from the card and the engine's build
//! ([`Rules`]). Each file names its sources as `file:function @ build`.

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
pub const AMPERE: Capability = 800;
pub const ADA: Capability = 890;
pub const BLACKWELL: Capability = 1200;

/// The engine, as far as its pool is concerned, in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DemandRules {
    /// ik_llama.cpp: copies a quantised cache in the pool; turns the latent cache back into keys and values.
    Ik,
    /// llama.cpp before PR 23907 (about b9400; b8799): copies a quantised cache in the pool.
    Copying,
    /// llama.cpp since then (b10605): the copies are in the compute buffer.
    Reserving,
    /// Interface version 3 of ggml's backends (ggml 0.26.0). It asks as b10605 does, but chooses some kernels
    /// otherwise.
    Third,
}

impl DemandRules {
    /// True if the f16 copies of a quantised cache come from the pool.
    pub const fn copies(self) -> bool {
        matches!(self, Self::Ik | Self::Copying)
    }
}

/// Card and engine, which decide which kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub capability: Capability,
    /// Multiprocessors.
    pub processors: u64,
    pub engine: DemandRules,
}

/// Blocks of one operation: allocated in order and freed in reverse. A size of 0 is no request.
pub type Group<const N: usize> = [u64; N];

/// The saturating product of many factors.
fn times<const N: usize>(factors: [u64; N]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// The card and the build of the recordings in `data/traces`.
#[cfg(test)]
const H200: Rules = Rules {
    capability: 900,
    processors: 132,
    engine: DemandRules::Copying,
};
