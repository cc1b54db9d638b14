//! Scheduler of models on GPUs: admission, placement, eviction and the order of requests.
//!
//! [`Scheduler::on_event`] takes an event and the time, and returns the actions that follow. Its one caller
//! (`serve`) carries them out and reports results as events.
//!
//! A claim is the memory that an engine may take on a card. A request is admitted only if the claim covers its
//! depth (tokens in the KV cache).
//!
//! The example follows a model from its first request until its memory is free again:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use plimsoll_base::{Bytes, Card, CardId, CardKind, Counting, DeclaredSize};
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
//!     effects.retain(|effect| !matches!(effect, SchedulerEffect::StateChanged { .. } | SchedulerEffect::WakeAt(_)));
//!     effects
//! };
//!
//! tell(SchedulerEvent::Configured(vec![(model, ConfigChange::Added(ModelSpec::new("alpha")))]));
//! let deadline = now + Duration::from_secs(60);
//! assert_eq!(tell(SchedulerEvent::Arrived { request, model, deadline }), [SchedulerEffect::Survey { model }]);
//!
//! let result = Ok(Arc::new(DeclaredSize(Bytes::gib(24))) as Arc<_>);
//! assert_eq!(tell(SchedulerEvent::Surveyed { model, result }), [SchedulerEffect::ReadCards]);
//! let free = vec![(CardId::new("GPU-1"), Bytes::gib(140))];
//! let effects = tell(SchedulerEvent::CardsRead { free, taken: now });
//! let [SchedulerEffect::Start { run, placement, .. }] = &effects[..] else { panic!() };
//! assert_eq!(placement.total(), Bytes::gib(24));
//!
//! let run = *run;
//! assert_eq!(tell(SchedulerEvent::Ready { run }), [SchedulerEffect::Dispatch { request, run }]);
//! assert_eq!(tell(SchedulerEvent::Finished { request, tokens: None }), []);
//!
//! assert_eq!(tell(SchedulerEvent::UnloadWanted { model }), [SchedulerEffect::Stop { run, how: Stopping::Graceful }]);
//! let effects = tell(SchedulerEvent::Ended { run, end: End::Expected });
//! assert!(matches!(&effects[..], [SchedulerEffect::AwaitMemory { .. }]));
//! assert_eq!(tell(SchedulerEvent::MemoryReturned { run }), []);
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
pub use effect::{ModelState, RequestRefusal, RequestRefusalKind, SchedulerEffect, Stopping};
pub use event::{ConfigChange, Health, SchedulerEvent};
pub use load_check::{Discrepancy, LoadCheck};
pub use plimsoll_base::{CardLimit, End, RunId, Stage};
pub use scheduler::Scheduler;
pub use slope::ObservedGrowth;
pub use spec::{ModelSpec, SchedulerSettings};
pub use state::{CardView, DepthView, HolderView, ModelView, SchedulerSnapshot};
pub use time::{ClientId, ModelId, Moment, RequestId};
