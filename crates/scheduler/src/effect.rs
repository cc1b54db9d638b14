//! What is to be done, and how a request is refused.

use std::time::Duration;

use plimsoll_base::{Bytes, Hint, Placement, Reason, RunId, Share};
use serde::Serialize;

use super::moment::{ModelId, Moment, RequestId};

/// Something that the owner has to do. Effects are to be carried out in the order in which they come.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Find out whether the model can load at all and what it needs: engine, files, header, plan. Answer with
    /// [`super::Event::Surveyed`].
    Survey { model: ModelId },
    /// Start an engine. Answer with Ready or Ended.
    Start {
        run: RunId,
        model: ModelId,
        placement: Placement,
    },
    /// Send the request to the run. Answer with Finished, Abandoned or Bounced.
    Dispatch { request: RequestId, run: RunId },
    /// Answer the request with a refusal; it is over.
    Refuse {
        request: RequestId,
        refusal: Box<Refusal>,
    },
    /// End an engine. Answer with Ended once its process is gone.
    Stop { run: RunId, how: Stopping },
    /// Wait until the driver has this much back from the run that ended: what it was last seen to take, or its
    /// claim where it was not seen. Answer with MemoryReturned, in any case after a few seconds.
    AwaitMemory { run: RunId, taken: Vec<Share> },
    /// The model does not fit as things are: ask neighbours on the cards for what they hold idle. Answer with NeighboursAsked, in
    /// any case after a moment; before it, with CardsRead if any gave something.
    AskNeighbours { model: ModelId },
    /// Find out how deep a request that waits may go: from its body alone, or, if `exact`, by asking the engine of the run to count.
    /// Answer with Sounded.
    Sound {
        request: RequestId,
        run: RunId,
        exact: bool,
    },
    /// What could be done for the run's plea is done: it may hold so much of the card now. None if nothing could be.
    Pleaded { run: RunId, claim: Option<Bytes> },
    /// The run's claim on a card was lowered or raised. What holds it to its claim has to follow, before what comes next.
    Claimed { run: RunId, share: Share },
    /// For listings and event streams.
    Changed { model: ModelId, state: State },
    /// Send [`super::Event::Tick`] at this time. Only the latest one counts.
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

/// What a model is doing, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Unloaded,
    /// Being looked at, or waiting for room.
    Queued,
    Loading,
    Ready,
    /// Finishes what it has and takes nothing new.
    Draining,
    Stopping,
    /// The last load or run failed; see its reason.
    Failed,
}

/// Why a request ends without an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// When it makes sense to ask again.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    pub retry_after: Option<Duration>,
    pub reason: Reason,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
}

/// Whole seconds, rounded up, as `Retry-After` wants them.
fn seconds<S: serde::Serializer>(wait: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(wait.map_or(0, |wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// It does not fit on the cards it may use even when nobody else is on them.
    NeverFits,
    /// It may go deeper than its model ever can on these cards.
    TooDeep,
    /// It would fit, but strangers or pinned models hold what it needs.
    NoRoom,
    /// Too many requests wait for this model already.
    QueueFull,
    /// It waited until its deadline.
    Deadline,
    /// The survey or the engine failed, or a crash loop is being waited out.
    LoadFailed,
    /// The engine died under the request, twice.
    EngineDied,
    /// The model was unloaded by hand while the request waited.
    Unloaded,
    /// The model is not, or no longer, in the configuration.
    Unconfigured,
    ShuttingDown,
}
