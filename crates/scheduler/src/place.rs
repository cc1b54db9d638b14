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
mod planned;
mod query;
mod sets;
mod together;

pub use answers::{CardSet, NeedAnswer, NeedAnswers};
pub(crate) use evict::{EvictionCandidate, cheapest};
pub(crate) use explain::{RULES, at_most, holding, kept_from_models, largest_first};
pub use ledger::{Account, AuditError, ClaimError, KeptFree, Ledger, LedgerClaim, allowance};
pub(crate) use placement::place_more;
pub use placement::{
    CardStanding, CardTenant, LearnedNeed, NoPlacement, PlacementQuery, PlacementVerdict, PlanAdvice,
    Reservations, need, place,
};
pub use planned::{advise, answers, place_planned, with_answers};
pub use together::{Beside, CandidateModel, CandidateVerdict, LoadedTogether, together};
