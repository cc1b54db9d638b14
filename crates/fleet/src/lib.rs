//! Fleet of hosts that agree by a store: records, placement over hosts, and the claim of a seat.
//!
//! A seat says on which host a model is to be loaded. [`Claim`] makes one in a single transaction, and the revision of
//! that transaction is the seat's token. [`FleetNode::on_event`] takes an event and the time, and returns what follows.
//!
//! The store never grants memory. A host checks the token of a request and then its own ledger, so a wrong store
//! can waste memory and time and cannot over-commit a card.
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
pub use news::{NewsLine, ToldChange};
pub use node::{
    Affinity, FleetEffect, FleetEvent, FleetNode, NodeSettings, NumberedSeats, SeatToken, TransactionOutcome,
};
pub use place::{CopyPlan, EvictedSeat, SeatPlan, SeatPurpose, SeatWish, copier, place};
pub use records::{
    Drain, FileDigest, HostCopies, HostRecord, HostState, ModelOffer, OfferList, RunPhase, RunState,
};
pub use records::{Record, Revocation, RunningCopy, SCHEMA, Seat, SeatCause, Turn};
pub use source::{DEEPEST, NewsSource, source};
pub use view::{FleetView, StoreChange, Versioned};
