//! Size of an engine's run-time memory pool, its causes, and changes that reduce it.
//!
//! An allocation trace is replayed for every possible change of the flags. A change becomes advice only if it
//! reduces the total memory, not just the pool.

use plimsoll_base::{Bytes, Hint, Reason};
use plimsoll_pool::generate::{
    CacheShape, DemandRules, GenerateError, GeneratedRun, GeneratorCard, ModelShape, cell_bytes, generate,
};
use plimsoll_pool::replay::{PolicyKind, smallest_budget};
use serde::Serialize;

mod levers;

/// An engine run whose pool is to be assessed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdviceQuestion {
    pub(crate) shape: ModelShape,
    pub(crate) run: GeneratedRun,
    pub(crate) card: GeneratorCard,
    pub(crate) kv: CacheType,
    pub(crate) pool: Pool,
    /// Memory that is left for the pool.
    pub(crate) budget: Option<Bytes>,
}

/// The engine's own pool, or Plimsoll's instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Legacy,
    Vmm,
    Plimsoll,
}

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheType {
    pub(crate) name: &'static str,
    /// Bytes for 32 values, ggml's block.
    pub(crate) block: u64,
}

impl CacheType {
    pub(crate) const F16: Self = Self { name: "f16", block: 64 };

    pub(crate) const ALL: [Self; 6] = [
        Self::F16,
        Self {
            name: "q8_0",
            // ggml's q8_0 block: 32 values of 8 bits and a 16-bit scale (`block_q8_0` in ggml-common.h).
            block: 34,
        },
        Self {
            name: "q5_1",
            // 5 bits per value, a 16-bit scale and a 16-bit minimum; q5_0 has no minimum.
            block: 24,
        },
        Self { name: "q5_0", block: 22 },
        Self { name: "q4_1", block: 20 },
        Self { name: "q4_0", block: 18 },
    ];

    pub(crate) fn cache(self) -> CacheShape {
        if self == Self::F16 { CacheShape::F16 } else { CacheShape::Quantised }
    }
}

/// Size of the pool, with causes and hints.
#[derive(Debug, Serialize)]
pub(crate) struct PoolAdvice {
    schema: &'static str,
    pub(crate) policy: &'static str,
    /// The smallest budget that completes the run.
    pub(crate) needs: Option<Bytes>,
    pub(crate) peak_live: Bytes,
    /// Live bytes that one more token of depth adds.
    pub(crate) growth_per_token: Bytes,
    pub(crate) budget: Option<Bytes>,
    pub(crate) fits: Option<bool>,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) hints: Vec<Hint>,
}

/// Cost of a run: its pool, and the memory that a change costs elsewhere.
#[derive(Clone, Copy, Debug)]
struct Cost {
    pool: Bytes,
    elsewhere: Bytes,
    live: Bytes,
}

impl AdviceQuestion {
    fn policy(&self) -> PolicyKind {
        match (self.pool, self.run.engine) {
            (Pool::Plimsoll, _) => PolicyKind::Plimsoll,
            (Pool::Vmm, _) => PolicyKind::GgmlVmm,
            // Newer llama.cpp frees the pool's idle buffers and retries when cudaMalloc fails; older builds
            // abort.
            (Pool::Legacy, DemandRules::Reserving | DemandRules::Third) => PolicyKind::GgmlLegacyFlush,
            (Pool::Legacy, DemandRules::Ik | DemandRules::Copying) => PolicyKind::GgmlLegacy,
        }
    }

    /// Cost of this run; `None` if no budget suffices.
    fn cost(&self) -> Result<Option<Cost>, GenerateError> {
        let trace = generate(&self.shape, &self.run, &self.card)?;
        let pool = smallest_budget(&trace, self.policy());
        Ok(pool.map(|pool| Cost {
            pool: Bytes::new(pool),
            // A smaller pool that is paid for with a larger cache is no saving.
            elsewhere: self.cache() + self.copies(),
            live: Bytes::new(trace.peak_live()),
        }))
    }

    /// Size of the KV cache of all layers.
    fn cache(&self) -> Bytes {
        let values = self.shape.cache_values(self.run.context, self.run.micro_batch);
        Bytes::new(values).scaled(self.kv.block, 32)
    }

    /// Size of the copies of a quantised cache, if the engine keeps them in its compute buffer.
    fn copies(&self) -> Bytes {
        match self.run.engine {
            DemandRules::Reserving | DemandRules::Third => {
                Bytes::new(cell_bytes(&self.shape, DemandRules::Copying, self.run.cache)) * self.run.context
            }
            DemandRules::Ik | DemandRules::Copying => Bytes::ZERO,
        }
    }

    /// Live bytes that each token of the deepest quarter of the context adds.
    fn growth(&self, live: Bytes) -> Result<Bytes, GenerateError> {
        // The last quarter only: a sliding window or a fixed part would flatten an average over all tokens.
        let context = self.run.context - self.run.context / 4;
        let run = GeneratedRun { context, ..self.run };
        let before = generate(&self.shape, &run, &self.card)?.peak_live();
        let tokens = (self.run.context - context).max(1);
        Ok(live.saturating_sub(Bytes::new(before)).scaled(1, tokens))
    }
}

/// Answers a question by replaying the run and its changes.
pub(crate) fn advise(question: &AdviceQuestion) -> Result<PoolAdvice, GenerateError> {
    let trace = generate(&question.shape, &question.run, &question.card)?;
    let peak_live = Bytes::new(trace.peak_live());
    // A trace of a deep prompt has millions of steps, and `cost` generates its own.
    drop(trace);
    let cost = question.cost()?;
    let growth = question.growth(peak_live)?;
    Ok(PoolAdvice {
        schema: "plimsoll.pool-advice/1",
        policy: question.policy().name(),
        needs: cost.map(|cost| cost.pool),
        peak_live,
        growth_per_token: growth,
        budget: question.budget,
        // A run that no budget completes does not fit, however large the budget.
        fits: question.budget.map(|budget| cost.is_some_and(|cost| cost.pool <= budget)),
        reasons: vec![reason(question, cost, growth)],
        hints: cost.map(|cost| levers::hints(question, cost)).unwrap_or_default(),
    })
}

fn reason(question: &AdviceQuestion, cost: Option<Cost>, growth: Bytes) -> Reason {
    let context = question.run.context;
    let Some(Cost { pool, live, .. }) = cost else {
        return Reason::new("pool_aborts", "no budget is enough: the pool runs out of address space");
    };
    let said = format!("the run-time pool takes {pool} for a prompt of {context} tokens");
    let mut reason = Reason::new("pool_needs", said).fact("needs", pool).fact("context", context).because(
        Reason::new("pool_live", format!("at most {live} of the pool is in use at any time"))
            .fact("live", live),
    );
    if !growth.is_zero() {
        reason = reason.because(grows(question, growth));
    }
    let stranded = pool.saturating_sub(live);
    // Up to a tenth is rounding of blocks and granules, which no flag changes.
    if stranded > live.scaled(1, 10) {
        let said = format!(
            "{stranded} are in blocks that the pool keeps although they have become too small for later \
            requests"
        );
        reason = reason.because(Reason::new("pool_strands", said).fact("stranded", stranded));
    }
    match question.budget.and_then(|budget| pool.checked_sub(budget)) {
        Some(over) if !over.is_zero() => {
            let said = format!("the pool needs {over} more than the budget");
            reason.because(Reason::new("pool_over_budget", said).fact("over", over))
        }
        _ => reason,
    }
}

fn grows(question: &AdviceQuestion, growth: Bytes) -> Reason {
    // The order matters: a latent cache (DeepSeek) is restored with and without flash attention.
    let what = if question.shape.latent.is_some() {
        "keys and values are decompressed from the latent cache, layer by layer"
    } else if question.run.flash_attention {
        "the cache of a layer is copied to f16 for every micro-batch"
    } else {
        "without flash attention, the attention probabilities (softmax output) of a layer are converted to \
        f16"
    };
    let said = format!("each token in use costs {growth}: {what}");
    Reason::new("pool_grows", said).fact("growth_per_token", growth)
}
