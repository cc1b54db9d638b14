//! When a model may start, who must go for it, and which request waits for what.
//!
//! The scheduler is sans-I/O: [`Scheduler::on_event`] takes what happened and the time, and returns what is to
//! be done. It has one owner and no lock, and every read that gates a change happens inside it; the owner
//! starts and stops engines, moves requests and reads cards, and tells the scheduler what came of it.
//!
//! Nobody is stopped for a newcomer before the newcomer is known to load (surveyed) and to fit once they are
//! gone (placed). A run that is chosen drains: it finishes what it has and takes nothing new. Waiting is
//! bounded: after `patience` the oldest queued model gets its victims chosen even if traffic keeps them busy,
//! and what it needs is held for it.

mod effect;
mod event;
mod loading;
mod model;
mod moment;
mod orders;
mod refusal;
mod requests;
mod retry;
mod running;
mod scheduler;
mod snapshot;
mod spec;
mod timers;
mod waiting;

pub use crate::place::RunId;
pub use effect::{Effect, Refusal, RefusalKind, State, Stopping};
pub use event::{Change, End, Event, Stage};
pub use moment::{ModelId, Moment, RequestId};
pub use scheduler::Scheduler;
pub use snapshot::{CardView, HolderView, ModelView, Snapshot};
pub use spec::{CardLimit, ModelSpec, Settings};
