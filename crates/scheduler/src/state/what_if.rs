//! Tries a load without doing it: the cards that a model would get now, and the models that would have to
//! stop.

use plimsoll_base::{Bytes, Hint, ModelNeed, Placement, Reason, RunId, Share};
use serde::Serialize;

use super::StateRef;
use crate::place::{CardSet, NeedAnswers, NoPlacement, PlacementVerdict, PlanAdvice, Reservations};
use crate::time::ModelId;

/// Result of a dry run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    pub fits: WhatIfVerdict,
    /// The cards that it would get, with its claims.
    pub shares: Vec<Share>,
    /// The names of the models that would have to stop.
    pub stops: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    #[serde(skip)]
    pub advice: PlanAdvice,
}

/// Result of a dry run of an order to keep memory of a card free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhatIfKeptFree {
    /// The names of the models that would stop; busy ones finish their requests first.
    pub stops: Vec<String>,
    /// Memory of it that pinned models would still hold.
    pub lacks: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhatIfVerdict {
    Now,
    /// After idle models have stopped.
    After,
    /// After the patience with busy or new models has passed, and they have stopped.
    Waits,
    /// After other programs or pinned models have left.
    Crowded,
    Never,
}

impl StateRef<'_> {
    /// Dry run of a load: the verdict on a load of the model with this need, as if its own run had ended and
    /// no other model waited; or the sets of cards that its plan has to tell of first.
    pub fn what_if(
        self,
        id: ModelId,
        need: &ModelNeed,
        answers: &NeedAnswers,
    ) -> Option<Result<WhatIf, Vec<CardSet>>> {
        let slot = self.model(id)?;
        let own = slot.run.as_ref().map(|run| run.id);
        let mut tenants = self.tenants(id, &self.contention_with(Some(id))).list;
        tenants.retain(|tenant| Some(tenant.run) != own);
        let mut ledger = self.ledger.clone();
        own.into_iter().for_each(|run| ledger.release(run));
        let need = slot.known_need(need);
        let verdict = self.placed(&slot.query(&need, answers), &ledger, &Reservations::default(), &tenants);
        let name = |run: &RunId| Some(self.model_of(*run)?.1.name.to_string());
        let found = |fits, placement: Placement, stops: &[RunId]| WhatIf {
            fits,
            shares: placement.shares,
            stops: stops.iter().filter_map(name).collect(),
            reason: None,
            hints: Vec::new(),
            advice: PlanAdvice::default(),
        };
        Some(Ok(match verdict {
            PlacementVerdict::Fits(placement) => found(WhatIfVerdict::Now, placement, &[]),
            PlacementVerdict::FitsAfter { placement, stop, waits } => {
                found(if waits { WhatIfVerdict::Waits } else { WhatIfVerdict::After }, placement, &stop)
            }
            PlacementVerdict::Later => found(WhatIfVerdict::Waits, Placement::default(), &[]),
            PlacementVerdict::Unplanned(sets) => return Some(Err(sets)),
            PlacementVerdict::Never(never) => {
                let fits = if never.crowded_out { WhatIfVerdict::Crowded } else { WhatIfVerdict::Never };
                let NoPlacement { reason, hints, advice, .. } = *never;
                WhatIf { reason: Some(reason), hints, advice, ..found(fits, Placement::default(), &[]) }
            }
        }))
    }
}
