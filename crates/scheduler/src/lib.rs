//! Scheduler of models on cards: admission, placement, eviction and the order of requests.
//!
//! The scheduler does no I/O: [`Scheduler::on_event`] takes an event and the time, and returns the actions
//! that follow. One driver owns it, without a lock, and every read that gates a change happens inside it. The
//! driver starts and stops engines, passes requests on, reads cards, and reports the outcome as events.
//!
//! No model is stopped for another before the other is known to load (surveyed) and to fit once the victims
//! are gone (placed). A victim drains: it finishes the requests in flight and takes no new ones. Waiting is
//! bounded: after the patience of the settings the oldest queued model gets its victims even if traffic keeps
//! them busy, and its need is reserved for it. Where cards share the host's memory, the largest model loads
//! first until then.
//!
//! Where an engine's memory grows with depth, a request is admitted only if the run's claim covers the depth
//! that it may reach; else the claim is raised, or the request waits, or is refused if that depth can never
//! be had. The part of a claim that no admitted request can use is available to waiting models.
//!
//! A load is decided on a reading of the cards that was taken for it, because other processes allocate
//! without asking.
//!
//! The life of a model, from its first request to the return of its memory:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use plimsoll_base::{Bytes, Card, CardId, CardKind, Counting, Declared};
//! use plimsoll_scheduler::*;
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
//! let mut scheduler = Scheduler::new(SchedulerSettings::new(vec![limit]));
//! let (now, model, request) = (Moment::START, ModelId(0), RequestId(0));
//! let mut tell = |event| {
//!     let mut effects = Vec::new();
//!     scheduler.on_event(now, event, &mut effects);
//!     effects.retain(|effect| !matches!(effect, Effect::StateChanged { .. } | Effect::WakeAt(_)));
//!     effects
//! };
//!
//! tell(Event::Configured(vec![(model, ConfigChange::Added(ModelSpec::new("alpha")))]));
//! let deadline = now + Duration::from_secs(60);
//! assert_eq!(tell(Event::Arrived { request, model, deadline }), [Effect::Survey { model }]);
//!
//! let result = Ok(Arc::new(Declared(Bytes::gib(24))) as Arc<_>);
//! assert_eq!(tell(Event::Surveyed { model, result }), [Effect::ReadCards]);
//! let free = vec![(CardId::new("GPU-1"), Bytes::gib(140))];
//! let effects = tell(Event::CardsRead { free, taken: now });
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
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod clock;
mod depth;
mod effect;
mod event;
mod failures;
mod load_check;
mod models;
mod occupancy;
pub mod place;
mod placements;
mod queue;
mod refusal;
mod runs;
mod scheduler;
mod slope;
mod spec;
mod state;
mod time;

pub use depth::RequestDepth;
pub use effect::{Effect, ModelState, RequestRefusal, RequestRefusalKind, Stopping};
pub use event::{ConfigChange, Event, Health};
pub use load_check::{Discrepancy, LoadCheck};
pub use plimsoll_base::{CardLimit, End, RunId, Stage};
pub use scheduler::Scheduler;
pub use slope::ObservedGrowth;
pub use spec::{ModelSpec, SchedulerSettings};
pub use state::{CardView, DepthView, HolderView, ModelView, SchedulerSnapshot};
pub use time::{ClientId, ModelId, Moment, RequestId};
