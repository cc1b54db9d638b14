//! Placement of models on cards: the ledger of claims, eviction, and the choice between cards.
//!
//! The [`Ledger`] records every claim: the memory that a run (an engine process) may take on a card.
//! [`place`] is a pure function over the ledger. It returns the cards on which a model fits and the evictions
//! needed there, or the reason why it fits nowhere. The memory need is a function of the cards
//! ([`MemoryModel`](plimsoll_base::MemoryModel)), because an engine that is split over two cards needs more
//! memory than on one.

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
