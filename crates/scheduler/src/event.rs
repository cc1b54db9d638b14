//! Lists the scheduler's inputs, called events: what its caller observed, such as the arrival of a request.

use std::time::Duration;

use plimsoll_base::{Bytes, CardId, Curve, End, ModelNeed, Priority, Reason, RunId};

use super::depth::RequestDepth;
use super::spec::ModelSpec;
use super::time::{ClientId, ModelId, Moment, RequestId, SearchId};
use crate::place::NeedAnswer;

/// Input from the driver. Events about runs that have ended are ignored: a task may report after its process
/// is gone. Requests end exactly once, by an event or by a refusal, so an event for one that has ended is an
/// [`UnknownRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerEvent {
    /// The configuration was read, at start or again. Carries the differences to the one before.
    Configured(Vec<(ModelId, ConfigChange)>),
    /// A request arrived. It is refused if it still waits at `deadline`.
    Arrived {
        request: RequestId,
        model: ModelId,
        client: ClientId,
        priority: Priority,
        deadline: Moment,
        traits: RequestTraits,
    },
    /// The client left, whether the request was waiting or in flight.
    Abandoned { request: RequestId },
    /// The client left, and its engine had sent no byte to anybody since it got the request.
    GaveUp { request: RequestId },
    /// The answer is complete, or it broke off after the client had received part of it. `tokens` counts
    /// prompt and answer together, if the engine reported them. `failed` is an error of the engine's own, or
    /// a broken answer.
    Finished { request: RequestId, tokens: Option<u64>, failed: bool },
    /// The answer to [`super::SchedulerEffect::MeasureDepth`]; `None` if the engine ended in the meantime.
    DepthMeasured { request: RequestId, run: RunId, depth: Option<RequestDepth> },
    /// A check of the model's files, without a request, found that it cannot run. The reason is shown until a
    /// client requests the model.
    ForecastFailed { model: ModelId, reason: Reason },
    /// The engine closed the connection before the client saw a byte of the answer.
    Bounced { request: RequestId },
    /// The answer to [`super::SchedulerEffect::CheckHealth`].
    HealthChecked { run: RunId, health: Health },
    /// The answer to [`super::SchedulerEffect::Probe`].
    Probed { run: RunId, outcome: ProbeOutcome },
    /// The answer to [`super::SchedulerEffect::Survey`]; or a new need of a model that waits for room.
    Surveyed { model: ModelId, result: Result<ModelNeed, Reason> },
    /// The answer to [`super::SchedulerEffect::AskNeed`], or to a part of it. It may come late, or again with
    /// other figures, once the model's engine has told its own.
    NeedAnswered { model: ModelId, search: SearchId, answers: Vec<NeedAnswer> },
    /// The answer to [`super::SchedulerEffect::PlanGrowth`]: the memory by depth, or why it is unknown.
    GrowthPlanned { run: RunId, curve: Result<Curve, String> },
    /// The engine is still loading. `measured` progress (a percentage) restarts the load timeout; mere output
    /// extends it to ten times its length at most.
    Progressed { run: RunId, measured: bool },
    /// The engine takes requests.
    Ready { run: RunId },
    /// The engine says how many requests it works on at once.
    SlotsKnown { run: RunId, slots: u32 },
    /// The engine has freed most of its memory, and takes it again with its next request. Send it a fresh
    /// [`SchedulerEvent::Measured`] afterwards.
    Slept { run: RunId },
    /// The engine's process has ended. If it ran out of memory, send a fresh [`SchedulerEvent::CardsRead`]
    /// first.
    Ended { run: RunId, end: End },
    /// The answer to [`super::SchedulerEffect::AwaitMemory`]: the driver has the bytes back, or the wait
    /// timed out.
    MemoryReturned { run: RunId },
    /// The answer to [`super::SchedulerEffect::AskNeighbours`], whatever they gave.
    NeighboursRequested { model: ModelId },
    /// Memory that the driver reports for the run. Send it before the [`SchedulerEvent::CardsRead`] of the
    /// same reading.
    Measured { run: RunId, used: Vec<(CardId, Bytes)> },
    /// An answer of this many tokens is complete, and the run used this much of its cards then.
    GrowthObserved { run: RunId, tokens: u64, used: Bytes },
    /// The run is about to be refused `asked` bytes on the card; with them it would hold `wanted` bytes
    /// there. The scheduler answers with [`super::SchedulerEffect::AnswerBudget`], unless the run ends first.
    BudgetRequested { run: RunId, card: CardId, requested: Bytes, wanted: Bytes },
    /// Free memory of each card as reported by the driver, and the time of the reading.
    CardsRead { free: Vec<(CardId, Bytes)>, taken: Moment },
    /// An operator requests a load of the model, without a client's request.
    LoadWanted { model: ModelId },
    /// An operator requests that the model be unloaded. Requests in flight finish.
    UnloadWanted { model: ModelId },
    /// An operator pins the model until this time; one that has passed ends the pin. A pin of the
    /// configuration stays.
    PinWanted { model: ModelId, until: Moment },
    /// An operator keeps this much of a card free for other processes until then; zero bytes, or a time that
    /// has passed, ends that. Idle runs leave at once, and busy ones after their answers.
    YieldWanted { card: CardId, bytes: Bytes, until: Moment },
    /// The program `name` began to use the card, and the configuration gives it precedence: idle runs leave.
    PrecedenceTaken { card: CardId, name: String },
    /// A client sets the time to live of the model's run, until that run ends; [`Duration::MAX`] turns it
    /// off, and `None` is the configured one.
    KeepWanted { model: ModelId, time: Option<Duration> },
    /// From now on no run ends for being idle, or each does again at its time. A fleet with a silent store
    /// changes no loaded model.
    IdleOccupied { occupied: bool },
    /// The time of [`super::SchedulerEffect::WakeAt`] has come. A tick at any other time has no effect.
    Tick,
    /// The daemon is to end.
    Shutdown,
}

/// The driver's knowledge of an arriving request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTraits {
    /// The last [`super::SchedulerEffect::Suspected`] of a request with the same body.
    pub kills: u32,
    /// The engine answers it without one of its slots, such as a count of tokens.
    pub slotless: bool,
}

/// Error: an event for a request that has ended, or that was not sent to a run. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("received an event for request {}, which has ended or was sent to no engine", .0.0)]
pub struct UnknownRequest(pub RequestId);

/// Difference between a model's old and new configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    Added(ModelSpec),
    /// The engine's own configuration changed: the old run drains, and a new one takes its place.
    Replaced(ModelSpec),
    /// Only the terms of admission changed: the run continues under the new ones.
    Retuned(ModelSpec),
    Removed,
}

/// Result of a probe: small requests of the driver's own, sent while requests of clients fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// A request was answered, an answer to a client went on meanwhile, or nothing was proven.
    Lives,
    /// Each request failed, or one got no byte while the engine did no work; and no client was sent a byte
    /// meanwhile.
    Fails,
}

/// Result of a health check over a new connection.
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
