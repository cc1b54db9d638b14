//! Where a model goes: cards, the ledger of claims on them, and the choice between them.
//!
//! Memory is added up in [`Ledger`] and nowhere else. [`place`] is a pure question to it: on which cards does
//! this demand fit, now or after whom, and if nowhere, why. What a model needs is a function of the cards it
//! gets ([`Demand`]), because an engine that splits itself over two cards needs more than on one.

mod answers;
mod card;
mod card_spec;
mod curve;
mod demand;
mod evict;
mod ledger;
mod placement;
mod sets;
mod why;

pub use answers::Answers;
pub use card::{Card, CardId, CardKind, CardLimit, Counting};
pub use card_spec::CardSpecError;
pub use curve::{Curve, Slots};
pub use demand::{Declared, Demand, Named, Placement, RunId, Share, Unknown};
pub(crate) use evict::{Candidate, smallest};
pub use ledger::{Account, AuditError, Claim, ClaimError, Ledger, allowance};
pub use placement::{Ask, Holds, Never, Standing, Tenant, Verdict, need, place};
