//! Lists the scheduler's outputs, called effects: actions for its caller, such as starting an engine.

use std::time::Duration;

use plimsoll_base::{Bytes, Card, Hint, Placement, Reason, RunId, Share};
use serde::Serialize;

use super::time::{ModelId, Moment, RequestId, SearchId};
use crate::place::{CardSet, PlanAdvice};

/// Action for the driver. Effects must be carried out in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerEffect {
    /// Find out whether the model can load at all, and its need: engine, files, header, plan. Answer with
    /// [`super::SchedulerEvent::Surveyed`].
    Survey { model: ModelId },
    /// Tell what the model takes of each of these sets of cards: by its plan, and by its engine where that
    /// has told. Answer with [`super::SchedulerEvent::NeedAnswered`]; models that come after it wait for the
    /// answer for a moment.
    AskNeed { model: ModelId, search: SearchId, sets: Vec<CardSet> },
    /// Tell how the memory of a run that was just started grows on these cards. Answer with
    /// [`super::SchedulerEvent::GrowthPlanned`] before it is ready; else the depth of its requests is not
    /// tracked.
    PlanGrowth { run: RunId, model: ModelId, cards: Vec<Card> },
    /// Read the cards: a load is about to be decided. Answer with Measured and CardsRead, in any case after a
    /// few seconds.
    ReadCards,
    /// The model waits for memory that other runs will free, and no load reads from the disk: its files may
    /// be read into the page cache meanwhile. No answer.
    ReadAhead { model: ModelId },
    /// Start an engine. Answer with Ready or Ended.
    Start { run: RunId, model: ModelId, placement: Placement },
    /// Send the request to the run. Answer with Finished, Abandoned or Bounced.
    Dispatch { request: RequestId, run: RunId },
    /// An engine died under the request, which is likely the cause. `kills` is 1 for an engine that had
    /// others too, and 1 more for each that had this one alone; with 3 the request is refused.
    Suspected { request: RequestId, model: ModelId, kills: u32 },
    /// Answer the request with a refusal, which ends it.
    Refuse { request: RequestId, refusal: Box<RequestRefusal> },
    /// A load that an operator or the configuration asked for is given up, because there is no room; no
    /// request waited for it, whose refusal would say so.
    GiveUpLoad { model: ModelId, reason: Box<Reason> },
    /// Check on a fresh connection that the engine answers. Answer with HealthChecked within two seconds.
    CheckHealth { run: RunId },
    /// Send the engine small requests of your own: those of clients fail. Answer with Probed, in any case
    /// after half a minute.
    Probe { run: RunId },
    /// End an engine. Answer with Ended once its process is gone.
    Stop { run: RunId, how: Stopping },
    /// Wait until the driver has this much back from a run that ended: its last measured memory, or its claim
    /// if it was never measured. Answer with MemoryReturned, in any case after a few seconds.
    AwaitMemory { run: RunId, taken: Vec<Share> },
    /// The model does not fit now: request guarded processes on the cards to release idle memory. Always
    /// answer with NeighboursAsked after a moment; before it, send CardsRead if any of them released memory.
    AskNeighbours { model: ModelId },
    /// Measure the depth of a waiting request: from its body alone or, if `exact`, by asking the run's engine
    /// to count tokens. Answer with DepthMeasured.
    MeasureDepth { request: RequestId, run: RunId, exact: bool },
    /// The answer to BudgetRequested: the run's claim on the card now. None if it could not be raised.
    AnswerBudget { run: RunId, claim: Option<Bytes> },
    /// The run's claim on a card changed. Its enforcement has to follow before the next effect.
    ClaimChanged { run: RunId, share: Share },
    /// A model's state has changed; for listings and event streams.
    StateChanged { model: ModelId, state: ModelState },
    /// Send [`super::SchedulerEvent::Tick`] at this time. Only the latest one counts.
    WakeAt(Moment),
    /// After Shutdown: no engine is left.
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stopping {
    Graceful,
    Kill,
}

/// State of a model, as shown to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelState {
    /// Never loaded, stopped, or without room at the last try.
    #[default]
    Unloaded,
    /// Being surveyed, or waiting for memory.
    Queued,
    Loading,
    Ready,
    /// Finishes the requests in flight and takes no new ones.
    Draining,
    Stopping,
    /// The last load or run failed; see its reason.
    Failed,
}

/// Refusal that ends a request without an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestRefusal {
    pub kind: RequestRefusalKind,
    /// Time after which a retry makes sense.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    pub retry_after: Option<Duration>,
    pub reason: Reason,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    #[serde(skip)]
    pub advice: PlanAdvice,
}

/// Whole seconds, rounded up, as `Retry-After` requires.
fn seconds<S: serde::Serializer>(wait: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    // Rounded down, a client would come back a moment too early.
    serializer.serialize_u64(wait.map_or(0, |wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestRefusalKind {
    /// The model does not fit on the cards that it may use, even if they were empty.
    NeverFits,
    /// The request may go deeper than its model ever can on these cards.
    TooDeep,
    /// The model would fit, but other processes or pinned models hold the memory.
    NoRoom,
    /// Too many requests wait for this model already.
    QueueFull,
    /// The request waited until its deadline.
    Deadline,
    /// The engine failed, or the model is held back after repeated crashes.
    LoadFailed,
    /// Its files, its flags or its engine have a fault that stands in the way of every load.
    Unstartable,
    /// The engine died under the request, twice.
    EngineDied,
    /// The engine closed the connection without an answer, and is healthy otherwise.
    Unanswered,
    /// The model was unloaded by hand while the request waited.
    Unloaded,
    /// The model is not, or no longer, in the configuration.
    Unconfigured,
    ShuttingDown,
}
