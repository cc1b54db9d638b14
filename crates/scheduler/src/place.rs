//! Places models on cards: records the memory granted to each engine, chooses cards, and chooses engines to
//! stop.
//!
//! The [`Ledger`] records every claim: the memory that an engine process may take on a card. [`place`]
//! chooses cards from it and changes nothing.

mod answers;
mod evict;
mod explain;
mod ledger;
mod placement;
mod query;
mod sets;

pub use answers::{CardSet, NeedAnswer, NeedAnswers};
pub(crate) use evict::{EvictionCandidate, cheapest};
pub(crate) use explain::{RULES, at_most, holding, kept_from_models, largest_first};
#[cfg(test)]
pub use ledger::audit::AuditError;
pub use ledger::{Account, ClaimError, KeptFree, Ledger, LedgerClaim, allowance};
pub(crate) use placement::place_more;
pub use placement::{
    CardStanding, CardTenant, LearnedNeed, NoPlacement, PlacementQuery, PlacementVerdict, PlanAdvice,
    Reservations, need, place,
};
pub use sets::card_sets;
