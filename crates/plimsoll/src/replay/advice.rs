//! Advice on an engine's run-time pool: its size, the reasons, and settings that shrink it.
//!
//! DECISION: nothing is estimated. The run as it is asked for and every change of it is generated and
//! replayed; advice is what then takes less in sum, counting what the change costs elsewhere (a larger cache,
//! copies in the compute buffer). With a budget, what reaches it comes first.

use plimsoll_base::{Bytes, Hint, Reason};
use plimsoll_pool::generate::{Cache, Card, Engine, GenerateError, Run, Shape, cell_bytes, generate};
use plimsoll_pool::replay::{PolicyKind, smallest_budget};
use serde::Serialize;

mod levers;

/// Run, card and pool to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) shape: Shape,
    pub(crate) run: Run,
    pub(crate) card: Card,
    pub(crate) kv: CacheType,
    pub(crate) pool: Pool,
    /// Budget of the pool.
    pub(crate) budget: Option<Bytes>,
}

/// The engine's own pool, or ours in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Legacy,
    Vmm,
    Plimsoll,
}

/// A type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheType {
    pub(crate) name: &'static str,
    /// Bytes of 32 values.
    pub(crate) block: u64,
}

impl CacheType {
    pub(crate) const F16: Self = Self {
        name: "f16",
        block: 64,
    };

    pub(crate) const ALL: [Self; 6] = [
        Self::F16,
        Self {
            name: "q8_0",
            block: 34,
        },
        Self {
            name: "q5_1",
            block: 24,
        },
        Self {
            name: "q5_0",
            block: 22,
        },
        Self {
            name: "q4_1",
            block: 20,
        },
        Self {
            name: "q4_0",
            block: 18,
        },
    ];

    pub(crate) fn cache(self) -> Cache {
        if self == Self::F16 {
            Cache::F16
        } else {
            Cache::Quantised
        }
    }
}

/// Size of the pool, with advice.
#[derive(Debug, Serialize)]
pub(crate) struct PoolAdvice {
    schema: &'static str,
    pub(crate) policy: &'static str,
    /// The smallest budget with which the run completes.
    pub(crate) needs: Option<Bytes>,
    pub(crate) peak_live: Bytes,
    /// Live bytes that one more token of depth adds.
    pub(crate) growth_per_token: Bytes,
    pub(crate) budget: Option<Bytes>,
    pub(crate) fits: Option<bool>,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) hints: Vec<Hint>,
}

/// Cost of a run: its pool, and the memory that a lever trades it for.
#[derive(Clone, Copy, Debug)]
struct Cost {
    pool: Bytes,
    elsewhere: Bytes,
    live: Bytes,
}

impl Question {
    fn policy(&self) -> PolicyKind {
        match (self.pool, self.run.engine) {
            (Pool::Plimsoll, _) => PolicyKind::Plimsoll,
            (Pool::Vmm, _) => PolicyKind::GgmlVmm,
            (Pool::Legacy, Engine::Reserving | Engine::Third) => PolicyKind::GgmlLegacyFlush,
            (Pool::Legacy, Engine::Ik | Engine::Copying) => PolicyKind::GgmlLegacy,
        }
    }

    /// `None` where no budget is enough.
    fn cost(&self) -> Result<Option<Cost>, GenerateError> {
        let trace = generate(&self.shape, &self.run, &self.card)?;
        let pool = smallest_budget(&trace, self.policy());
        Ok(pool.map(|pool| Cost {
            pool: Bytes::new(pool),
            elsewhere: self.cache() + self.copies(),
            live: Bytes::new(trace.peak_live()),
        }))
    }

    /// The KV cache of all layers.
    fn cache(&self) -> Bytes {
        let values = self.shape.cache_values(self.run.context, self.run.micro_batch);
        Bytes::new(values).scaled(self.kv.block, 32)
    }

    /// The copies of a quantised cache, where the engine has them in its compute buffer.
    fn copies(&self) -> Bytes {
        match self.run.engine {
            Engine::Reserving | Engine::Third => {
                Bytes::new(cell_bytes(&self.shape, Engine::Copying, self.run.cache)) * self.run.context
            }
            Engine::Ik | Engine::Copying => Bytes::ZERO,
        }
    }

    /// Returns the live bytes per token that the deepest quarter of the context adds.
    fn growth(&self, live: Bytes) -> Result<Bytes, GenerateError> {
        let context = self.run.context - self.run.context / 4;
        let run = Run { context, ..self.run };
        let before = generate(&self.shape, &run, &self.card)?.peak_live();
        let tokens = (self.run.context - context).max(1);
        Ok(live.saturating_sub(Bytes::new(before)).scaled(1, tokens))
    }
}

/// Answers a question by replaying it and its changes.
pub(crate) fn advise(question: &Question) -> Result<PoolAdvice, GenerateError> {
    let trace = generate(&question.shape, &question.run, &question.card)?;
    let peak_live = Bytes::new(trace.peak_live());
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
        fits: question
            .budget
            .map(|budget| cost.is_some_and(|cost| cost.pool <= budget)),
        reasons: vec![reason(question, cost, growth)],
        hints: cost.map(|cost| levers::hints(question, cost)).unwrap_or_default(),
    })
}

fn reason(question: &Question, cost: Option<Cost>, growth: Bytes) -> Reason {
    let context = question.run.context;
    let Some(Cost { pool, live, .. }) = cost else {
        return Reason::new(
            "pool_aborts",
            "no budget is enough: the pool's addresses are used up",
        );
    };
    let said = format!("the run-time pool takes {pool} for a prompt of {context} tokens");
    let mut reason = Reason::new("pool_needs", said)
        .fact("needs", pool)
        .fact("context", context)
        .because(
            Reason::new("pool_live", format!("at most {live} of it are in use at once")).fact("live", live),
        );
    if !growth.is_zero() {
        reason = reason.because(grows(question, growth));
    }
    let stranded = pool.saturating_sub(live);
    if stranded > live.scaled(1, 10) {
        let said = format!("{stranded} are blocks that were outgrown and are kept");
        reason = reason.because(Reason::new("pool_strands", said).fact("stranded", stranded));
    }
    match question.budget.and_then(|budget| pool.checked_sub(budget)) {
        Some(over) if !over.is_zero() => {
            let said = format!("that is {over} more than the budget");
            reason.because(Reason::new("pool_over_budget", said).fact("over", over))
        }
        _ => reason,
    }
}

fn grows(question: &Question, growth: Bytes) -> Reason {
    let what = if question.shape.latent.is_some() {
        "keys and values are restored from the latent cache, layer by layer"
    } else if question.run.flash_attention {
        "the cache of a layer is copied to f16 for every micro-batch"
    } else {
        "without flash attention the probabilities of a layer are converted to f16"
    };
    let said = format!("each token of depth costs {growth}: {what}");
    Reason::new("pool_grows", said).fact("growth_per_token", growth)
}
