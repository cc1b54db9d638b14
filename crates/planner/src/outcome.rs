//! Result of a plan (`plimsoll.plan/1`), as printed by `plimsoll plan --json` and used by `serve`.

use std::ops::AddAssign;

use plimsoll_base::{Bytes, CardId, Hint, Reason, RequestedMemory, Source};
use plimsoll_wire::cache::CacheLayout;
use serde::Serialize;

use crate::{EngineBuild, PlannedSpeed};

/// One memory term of the sum, with the source of its number. `None` is unknown. A document has the number
/// alone: the sources are in the reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PlanTerm {
    pub bytes: Option<Bytes>,
    #[serde(skip)]
    pub source: Source,
}

impl PlanTerm {
    pub fn new(bytes: Bytes, source: Source) -> Self {
        Self { bytes: Some(bytes), source }
    }

    /// The bytes for a sum: an unknown term counts as zero, and the reasons of the plan name it.
    pub fn known(&self) -> Bytes {
        self.bytes.unwrap_or_default()
    }
}

/// An unknown term stays unknown.
impl AddAssign<Bytes> for PlanTerm {
    fn add_assign(&mut self, more: Bytes) {
        self.bytes = self.bytes.map(|bytes| bytes + more);
    }
}

/// Memory terms on one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Terms {
    pub weights: PlanTerm,
    pub kv: PlanTerm,
    pub compute: PlanTerm,
    /// Run-time pool at full depth.
    pub pool: PlanTerm,
    /// Driver context, modules, cuBLAS.
    pub context: PlanTerm,
}

impl Terms {
    /// The sum once loaded, before the first request: the pool is empty until then.
    pub(crate) fn loaded(&self) -> Bytes {
        self.weights.known() + self.kv.known() + self.compute.known() + self.context.known()
    }

    /// The sum at full depth.
    pub(crate) fn peak(&self) -> Bytes {
        self.loaded() + self.pool.known()
    }

    /// `free - peak`, at the ends of the range rather than beyond them.
    pub(crate) fn headroom(&self, free: Bytes) -> i64 {
        let peak = self.peak();
        // A hostile header may make the difference larger than `i64` holds.
        let magnitude = i64::try_from(free.get().abs_diff(peak.get())).unwrap_or(i64::MAX);
        if free >= peak { magnitude } else { -magnitude }
    }
}

/// Memory terms in host memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostTerms {
    pub weights: PlanTerm,
    pub kv: PlanTerm,
    pub compute: PlanTerm,
    pub output: PlanTerm,
}

impl HostTerms {
    /// Memory of the host at full context, as far as it is known.
    pub fn peak(&self) -> Bytes {
        self.weights.known() + self.kv.known() + self.compute.known() + self.output.known()
    }
}

/// Memory of the model on one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CardPlan {
    pub id: CardId,
    pub total: Bytes,
    pub free: Bytes,
    pub terms: Terms,
    /// After loading, before the first request.
    pub loaded: Bytes,
    /// At full context.
    pub peak: Bytes,
    /// `free - peak`; negative when it does not fit.
    pub headroom: i64,
    pub fits: bool,
    /// Allocations of caches that can be divided by position.
    #[serde(skip)]
    pub caches: Vec<CacheLayout>,
    /// The allocation of the weights, which can give way to used positions of a cache.
    #[serde(skip)]
    pub weights_allocation: Option<Bytes>,
}

impl CardPlan {
    /// Memory that the engine itself requests: all but the driver's context; `None` if a term is unknown.
    pub fn requested(&self) -> Option<RequestedMemory> {
        let terms = &self.terms;
        let requested = [&terms.weights, &terms.kv, &terms.compute, &terms.pool];
        // A sum with an unknown term is itself unknown.
        let bytes = requested.iter().map(|term| term.bytes).sum::<Option<Bytes>>()?;
        let (card, caches, weights) = (self.id.clone(), self.caches.clone(), self.weights_allocation);
        Some(RequestedMemory { card, bytes, caches, weights })
    }
}

/// Memory of the model on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostPlan {
    pub terms: HostTerms,
    pub peak: Bytes,
}

/// Growth of memory with depth (tokens in use).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DepthGrowth {
    /// Bytes of cache that one more token of context costs, over all cards.
    pub bytes_per_token: Bytes,
    /// Bytes of run-time pool that one more token of depth costs; 0 where the pool does not grow.
    pub pool: Bytes,
}

/// Memory of a model on every card and on the host, with reasons and advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub schema: &'static str,
    pub model: String,
    /// The engine that the plan is made for.
    pub engine: EngineBuild,
    /// Context the engine will really reserve, in tokens.
    pub context: u64,
    /// The model's own context, where the flags give none.
    pub default_context: Option<u64>,
    pub cards: Vec<CardPlan>,
    pub host: HostPlan,
    pub growth: DepthGrowth,
    /// The largest context that fits where this plan puts it; `None` if not even the smallest does.
    pub largest_context: Option<u64>,
    /// The context that the model was trained for, of all slots with caches of their own together; `None`
    /// where its header does not say.
    pub trained_context: Option<u64>,
    /// Requests that share the context, each in a cache of its own.
    #[serde(skip)]
    pub streams: u64,
    pub fits: bool,
    pub speed: PlannedSpeed,
    /// Doubts about the verdict, which every rendering shows before it.
    pub warnings: Vec<Reason>,
    pub reasons: Vec<Reason>,
    pub hints: Vec<Hint>,
}
