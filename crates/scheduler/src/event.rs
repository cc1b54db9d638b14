//! Inputs of the scheduler, as the driver observed them.

use std::sync::Arc;

use plimsoll_base::{Bytes, CardId, End, MemoryModel, Reason, RunId};

use super::depth::RequestDepth;
use super::spec::ModelSpec;
use super::time::{ClientId, ModelId, Moment, RequestId};

/// Something that happened. Events about runs and requests that have ended are ignored.
#[derive(Clone, Debug)]
pub enum Event {
    /// The configuration was read, at start or again. Carries the differences to the one before.
    Configured(Vec<(ModelId, ConfigChange)>),
    /// A request arrived. It is refused if it still waits at `deadline`.
    Arrived {
        request: RequestId,
        model: ModelId,
        deadline: Moment,
    },
    /// The client left, whether the request was waiting or in flight.
    Abandoned { request: RequestId },
    /// The answer is complete, or it broke off after the client had seen part of it. `tokens` counts the
    /// prompt and the answer together, where the engine reported them.
    Finished { request: RequestId, tokens: Option<u64> },
    /// The answer to [`super::Effect::MeasureDepth`]; `None` if the engine went away meanwhile.
    DepthMeasured {
        request: RequestId,
        run: RunId,
        depth: Option<RequestDepth>,
    },
    /// A look at the model's files found, without a request, that it cannot run. The reason is shown until a
    /// client asks for it.
    ForecastFailed { model: ModelId, reason: Reason },
    /// The engine closed the connection before the client saw a byte of the answer.
    Bounced { request: RequestId, client: ClientId },
    /// The answer to [`super::Effect::CheckHealth`].
    HealthChecked { run: RunId, health: Health },
    /// The answer to [`super::Effect::Survey`].
    Surveyed {
        model: ModelId,
        result: Result<Arc<dyn MemoryModel>, Reason>,
    },
    /// The engine is still loading. `measured` progress (a percentage) restarts the load timeout; mere output
    /// extends it to ten times its length at most.
    Progressed { run: RunId, measured: bool },
    /// The engine takes requests.
    Ready { run: RunId },
    /// The engine's process is gone. After an end for want of memory, send a fresh [`Event::CardsRead`]
    /// first.
    Ended { run: RunId, end: End },
    /// The answer to [`super::Effect::AwaitMemory`]: the driver has the bytes back, or the wait timed out.
    MemoryReturned { run: RunId },
    /// The answer to [`super::Effect::AskNeighbours`], whatever they gave.
    NeighboursAsked { model: ModelId },
    /// Memory that the driver reports for the run. Send it before the [`Event::CardsRead`] of the same
    /// reading.
    Measured { run: RunId, used: Vec<(CardId, Bytes)> },
    /// An answer of this many tokens is complete, and the run used this much of its cards then.
    GrowthObserved { run: RunId, tokens: u64, used: Bytes },
    /// The run is about to be refused `asked` bytes on the card; with them it would hold `wanted` there. The
    /// scheduler answers with [`super::Effect::AnswerBudget`], unless the run ends first.
    BudgetRequested {
        run: RunId,
        card: CardId,
        asked: Bytes,
        wanted: Bytes,
    },
    /// Free memory of each card that the driver reports, and the time at which it was asked.
    CardsRead {
        free: Vec<(CardId, Bytes)>,
        taken: Moment,
    },
    /// An operator wants the model loaded, without a request.
    LoadWanted { model: ModelId },
    /// An operator wants the model gone. Requests in flight finish.
    UnloadWanted { model: ModelId },
    /// The time of [`super::Effect::WakeAt`] has come; harmless at any other time.
    Tick,
    /// The daemon is to end.
    Shutdown,
}

/// The difference of a model's configuration to the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    Added(ModelSpec),
    /// The engine's own configuration changed: the old run drains, and a new one takes its place.
    Replaced(ModelSpec),
    /// Only the terms of admission changed: the run continues under the new ones.
    Retuned(ModelSpec),
    Removed,
}

/// The outcome of a health check on a fresh connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The engine answered.
    Answers,
    /// The connection was refused or closed, or the engine reported an internal error.
    Fails,
    /// The engine accepted the connection and did not answer in time: it hangs, or it serves one request at a
    /// time.
    Silent,
}
