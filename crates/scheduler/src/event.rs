//! What happened, as the owner saw it.

use std::sync::Arc;

use plimsoll_base::{Bytes, CardId, Demand, End, Reason, RunId};

use super::depth::Depth;
use super::moment::{ModelId, Moment, RequestId};
use super::spec::ModelSpec;

/// Something that happened. Events about runs and requests that are over already are ignored.
#[derive(Clone, Debug)]
pub enum Event {
    /// The configuration was read, at start or again: what differs from before.
    Configured(Vec<(ModelId, Change)>),
    /// A client asks. It is refused if it is still waiting at `deadline`.
    Arrived {
        request: RequestId,
        model: ModelId,
        deadline: Moment,
    },
    /// The client left, whether the request was waiting or in flight.
    Abandoned { request: RequestId },
    /// The answer is through, or broke off after the client had seen part of it. `tokens` are those of the prompt and the answer
    /// together, where the engine said so.
    Finished { request: RequestId, tokens: Option<u64> },
    /// Answers [`super::Effect::Sound`]; `None` where the engine went away meanwhile.
    Sounded {
        request: RequestId,
        run: RunId,
        depth: Option<Depth>,
    },
    /// The model was looked at without being asked for, and cannot run: what is wrong is shown until somebody asks.
    Foreseen { model: ModelId, reason: Reason },
    /// The engine died before the client saw a byte of the answer: the request may be tried once more.
    Bounced { request: RequestId },
    /// Answers [`super::Effect::Survey`].
    Surveyed {
        model: ModelId,
        result: Result<Arc<dyn Demand>, Reason>,
    },
    /// The engine is still loading, and gets on: the load timeout starts again.
    Progressed { run: RunId },
    /// The engine takes requests.
    Ready { run: RunId },
    /// The engine's process is gone.
    Ended { run: RunId, end: End },
    /// Answers [`super::Effect::AwaitMemory`]: the driver has the bytes back, or waiting for them was given up.
    MemoryReturned { run: RunId },
    /// Answers [`super::Effect::AskNeighbours`]: they gave what they gave.
    NeighboursAsked { model: ModelId },
    /// What the run takes now, by the driver's word. Send it before the [`Event::CardsRead`] of the same look.
    Measured { run: RunId, used: Vec<(CardId, Bytes)> },
    /// An answer of this many tokens is through, and the run took so much of its cards then.
    Deepened { run: RunId, tokens: u64, used: Bytes },
    /// The run is about to be refused `asked` bytes on the card; with them it would hold `wanted` there. Answered by
    /// [`super::Effect::Pleaded`], unless the run ends first.
    Pleaded {
        run: RunId,
        card: CardId,
        asked: Bytes,
        wanted: Bytes,
    },
    /// What is free on each card, by the driver's word.
    CardsRead(Vec<(CardId, Bytes)>),
    /// Somebody wants the model loaded, without a request.
    LoadWanted { model: ModelId },
    /// Somebody wants the model gone; requests in flight finish, queued ones are refused.
    UnloadWanted { model: ModelId },
    /// The time of [`super::Effect::WakeAt`] has come; harmless at any other time.
    Tick,
    /// The daemon is to end.
    Shutdown,
}

/// How a model's configuration differs from before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Added(ModelSpec),
    /// What the engine runs has changed: a run of the old kind drains, and the new kind takes its place.
    Replaced(ModelSpec),
    /// Only the terms of admission have changed: the run goes on under the new ones.
    Retuned(ModelSpec),
    Removed,
}
