//! When a model may start, who must go for it, and which request waits for what.
//!
//! The scheduler is sans-I/O: [`Scheduler::on_event`] takes what happened and the time, and returns what is to
//! be done. It has one owner and no lock, and every read that gates a change happens inside it; the owner
//! starts and stops engines, moves requests and reads cards, and tells the scheduler what came of it.
//!
//! Nobody is stopped for a newcomer before the newcomer is known to load (surveyed) and to fit once they are
//! gone (placed). A run that is chosen drains: it finishes what it has and takes nothing new. Waiting is
//! bounded: after `patience` the oldest queued model gets its victims chosen even if traffic keeps them busy,
//! and what it needs is held for it. Where cards take the host's memory, the largest has its turn first until then.
//!
//! Where an engine's memory grows with depth, a request is let through only if the run's claim covers the depth that it may
//! reach; else the claim is raised, or the request waits, or is refused if that depth can never be had. What a run holds beyond
//! what its requests may reach is there for others who wait.
//!
//! One request to a model that is not loaded, and the way back down:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use crate::*;
//! use plimsoll_base::Bytes;
//! use crate::place::{Card, CardId, CardKind, Counting, Declared};
//!
//! let card = Card {
//!     id: CardId::new("GPU-1"),
//!     kind: CardKind::Cuda,
//!     name: "H200".to_owned(),
//!     uuid: Some("GPU-1".to_owned()),
//!     total: Bytes::gib(140),
//!     free: Bytes::gib(140),
//!     compute_capability: Some((9, 0)),
//!     legacy_pool: false,
//!     counting: Counting::Driver,
//! };
//! let limit = CardLimit { card, budget: None, reserve: Bytes::gib(1) };
//! let mut scheduler = Scheduler::new(Settings::new(vec![limit]));
//! let (now, model, request) = (Moment::START, ModelId(0), RequestId(0));
//! let mut tell = |event| {
//!     let mut effects = Vec::new();
//!     scheduler.on_event(now, event, &mut effects);
//!     effects.retain(|effect| !matches!(effect, Effect::Changed { .. } | Effect::WakeAt(_)));
//!     effects
//! };
//!
//! tell(Event::Configured(vec![(model, Change::Added(ModelSpec::new("alpha")))]));
//! let deadline = now + Duration::from_secs(60);
//! assert_eq!(tell(Event::Arrived { request, model, deadline }), [Effect::Survey { model }]);
//!
//! let result = Ok(Arc::new(Declared(Bytes::gib(24))) as Arc<_>);
//! let effects = tell(Event::Surveyed { model, result });
//! let [Effect::Start { run, placement, .. }] = &effects[..] else { panic!() };
//! assert_eq!(placement.total(), Bytes::gib(24));
//!
//! let run = *run;
//! assert_eq!(tell(Event::Ready { run }), [Effect::Dispatch { request, run }]);
//! assert_eq!(tell(Event::Finished { request, tokens: None }), []);
//!
//! assert_eq!(tell(Event::UnloadWanted { model }), [Effect::Stop { run, how: Stopping::Graceful }]);
//! let effects = tell(Event::Ended { run, end: End::Expected });
//! assert!(matches!(&effects[..], [Effect::AwaitMemory { .. }]));
//! assert_eq!(tell(Event::MemoryReturned { run }), []);
//! ```
#![forbid(unsafe_code)]

mod deepening;
mod depth;
mod effect;
mod event;
mod gate;
mod growth;
mod loading;
mod model;
mod moment;
mod occupancy;
mod orders;
mod parting;
pub mod place;
mod pleas;
mod refusal;
mod requests;
mod retry;
mod running;
mod scheduler;
mod slack;
mod snapshot;
mod spec;
mod timers;
mod turns;
mod waiting;

pub use depth::Depth;
pub use effect::{Effect, Refusal, RefusalKind, State, Stopping};
pub use event::{Change, Event};
pub use growth::Growth;
pub use moment::{ModelId, Moment, RequestId};
pub use plimsoll_base::{CardLimit, End, RunId, Stage};
pub use scheduler::Scheduler;
pub use snapshot::{CardView, DepthView, HolderView, ModelView, Snapshot};
pub use spec::{ModelSpec, Settings};
