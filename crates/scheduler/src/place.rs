//! Placement of models on cards: the ledger of claims, eviction, and the choice between cards.
//!
//! [`Ledger`] holds all claims. [`place`] is a pure question to it: on which cards does this demand fit, now
//! or after which eviction, and if nowhere, for which reason. A model's need is a function of the cards it
//! gets ([`Demand`](plimsoll_base::Demand)), because an engine that splits itself over two cards needs more
//! than on one.

mod cache;
mod evict;
mod explain;
mod ledger;
mod placement;
mod sets;

pub use cache::DemandCache;
pub(crate) use evict::{EvictionCandidate, smallest};
pub use ledger::{Account, AuditError, ClaimError, Ledger, LedgerClaim, allowance};
pub use placement::{
    CardStanding, CardTenant, NoPlacement, PlacementQuery, PlacementVerdict, Reservations, need, place,
};
