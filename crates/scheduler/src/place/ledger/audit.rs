//! Checks the ledger after each event of a simulated world.

use std::num::NonZeroUsize;

use plimsoll_base::{Bytes, CardId};

use super::Ledger;

/// Contradiction in the ledger, which is a defect of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    #[error("{card}: memory is reserved twice for the same engine process")]
    Twice { card: CardId },
    #[error("{card}: a model that must have the card to itself shares it with another model")]
    Company { card: CardId },
    #[error("{card}: {granted} of memory is reserved, but the limit is {limit}")]
    OverGranted { card: CardId, granted: Bytes, limit: Bytes },
    #[error("{runs} engines hold memory, but the limit is {most}")]
    TooManyRuns { runs: usize, most: usize },
}

impl Ledger {
    /// Checks the ledger: no run has two claims on a card, no whole card is shared, no more than a card's
    /// limit is granted, and no more runs than their limit.
    pub fn audit(&self) -> Result<(), AuditError> {
        let runs = self.runs();
        if let Some(most) = self.most_runs.map(NonZeroUsize::get).filter(|most| runs > *most) {
            return Err(AuditError::TooManyRuns { runs, most });
        }
        for account in &self.accounts {
            let card = || account.card.id.clone();
            let claims = &account.claims;
            if (1..claims.len()).any(|i| claims[..i].iter().any(|claim| claim.run == claims[i].run)) {
                return Err(AuditError::Twice { card: card() });
            }
            let granted_alone = claims.iter().filter(|claim| claim.alone && !claim.granted.is_zero()).count();
            let granted_all = claims.iter().filter(|claim| !claim.granted.is_zero()).count();
            if granted_alone > 0 && granted_all > 1 {
                return Err(AuditError::Company { card: card() });
            }
            let (granted, limit) = (claims.iter().map(|claim| claim.granted).sum(), account.limit());
            if granted > limit {
                return Err(AuditError::OverGranted { card: card(), granted, limit });
            }
        }
        Ok(())
    }
}
