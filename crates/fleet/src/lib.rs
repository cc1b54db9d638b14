//! Decides which host of a fleet loads and serves a model; all hosts share one store (etcd).
//!
//! A seat is the record that a model is to be loaded on a host. A [`Claim`] creates one in a single
//! transaction. The transaction's revision is the seat's token, a fencing token that travels with each
//! request. [`FleetNode::on_event`] takes an event and the time, and returns the effects to carry out.
//!
//! The store never grants memory. A host checks the token of a request and then its own ledger of memory. So
//! a wrong store can waste memory and time, but cannot over-commit a card.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod claim;
mod keys;
mod news;
mod node;
mod place;
mod records;
mod source;
mod view;

pub use claim::{Claim, ClaimGuard, Compare, Transaction, Write};
pub use keys::{FleetKey, KeySpace};
pub use news::{NewsLine, ReportedChange};
pub use node::{
    Affinity, FleetEffect, FleetEvent, FleetNode, NodeSettings, NumberedSeats, SeatToken, TransactionOutcome,
};
pub use place::{CopyPlan, EvictedSeat, SeatDemand, SeatPlan, SeatPurpose, copier, place};
pub use records::{
    Drain, FileDigest, HostCopies, HostRecord, HostState, ModelOffer, OfferList, RunPhase, RunState,
};
pub use records::{Record, Revocation, RunningCopy, SCHEMA, Seat, SeatCause, Turn};
pub use source::{DEEPEST, NewsSource, source};
pub use view::{FleetView, StoreChange, Versioned};

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_fleet;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
