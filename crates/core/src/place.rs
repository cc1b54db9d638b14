//! Where a model goes: cards, the ledger of claims on them, and the choice between them.

mod card;

pub use card::{Card, CardId, CardKind};
