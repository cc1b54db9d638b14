//! Decides which models are loaded on which GPUs, which are stopped for them, and in which order requests are
//! sent.
//!
//! [`Scheduler::on_event`] takes an event and the time, and returns the actions that follow. Its one caller
//! (`serve`) carries them out and reports results as events.
//!
//! A claim is the memory that an engine may take on a card. A run is one engine process of a model. A request
//! is admitted only if the run's claim covers the request's depth (its tokens in the KV cache).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

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
pub use event::{ConfigChange, Health, ProbeOutcome, RequestTraits, SchedulerEvent, UnknownRequest};
pub use load_check::{Discrepancy, LoadCheck};
pub use plimsoll_base::{CardLimit, End, RunId, Stage};
pub use scheduler::Scheduler;
pub use slope::ObservedGrowth;
pub use spec::{ModelSpec, SchedulerSettings};
pub use state::{
    CardView, DepthView, HolderView, ModelOutlook, ModelView, SchedulerSnapshot, StateRef, WaitView, WhatIf,
    WhatIfKeptFree, WhatIfVerdict, YieldView,
};
pub use time::{ClientId, ModelId, Moment, RequestId, SearchId};

#[cfg(test)]
extern crate self as plimsoll_scheduler;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
