//! Placement of models on cards: the ledger of claims, eviction, and the choice between cards.
//!
//! Claims are added up in [`Ledger`] and nowhere else. [`place`] is a pure question to it: on which cards does this demand fit,
//! now or after whose eviction, and if nowhere, for which reason. A model's need is a function of the cards it gets
//! ([`Demand`](plimsoll_base::Demand)), because an engine that splits itself over two cards needs more than on one.

mod answers;
mod evict;
mod ledger;
mod placement;
mod sets;
mod why;

pub use answers::Answers;
pub(crate) use evict::{Candidate, smallest};
pub use ledger::{Account, AuditError, Claim, ClaimError, Ledger, allowance};
pub use placement::{Ask, Holds, Never, Standing, Tenant, Verdict, need, place};
