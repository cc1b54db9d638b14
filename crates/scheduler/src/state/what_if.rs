//! Tries a load without doing it: the cards that a model would get now, and the models that would have to
//! stop.

use plimsoll_base::{Bytes, Hint, ModelNeed, Reason, Share};
use serde::Serialize;

use super::StateRef;
use crate::place::{
    CardSet, CardTenant, NeedAnswers, PlacementQuery, PlacementVerdict, PlanAdvice, Reservations, place,
};
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
    /// The verdict on a load of the model with this need, as if its own run had ended and no other model
    /// waited; or the sets of cards that its plan has to tell of first.
    pub(crate) fn what_if(
        self,
        id: ModelId,
        need: &ModelNeed,
        answers: &NeedAnswers,
    ) -> Option<Result<WhatIf, Vec<CardSet>>> {
        let slot = self.model(id)?;
        let own = slot.run.as_ref().map(|run| run.id);
        let measured = slot.measured_need(need);
        let query = PlacementQuery {
            name: &slot.name,
            need: measured.as_ref().unwrap_or(need),
            answers,
            learned: slot.record.learned(),
            allowed: &slot.spec.allowed,
            port: slot.spec.port,
            apart: 0,
        };
        let tenants: Vec<CardTenant> = self
            .tenants(id, &self.contention())
            .list
            .into_iter()
            .filter(|tenant| Some(tenant.run) != own)
            .collect();
        let verdict =
            [Some(self.ledger.clone()), self.without_slack()].into_iter().flatten().map(|mut ledger| {
                own.into_iter().for_each(|run| ledger.release(run));
                place(&query, &ledger, &Reservations::default(), &tenants)
            });
        // Unused parts of claims are taken before any model is stopped.
        let mut verdict: Vec<_> = verdict.collect();
        let is_first =
            matches!(verdict.first(), Some(PlacementVerdict::Fits(_) | PlacementVerdict::Unplanned(_)));
        let verdict = if is_first { verdict.swap_remove(0) } else { verdict.pop()? };
        let advice = PlanAdvice::default();
        let (fits, placement, stops) = match verdict {
            PlacementVerdict::Fits(placement) => (WhatIfVerdict::Now, placement, Vec::new()),
            PlacementVerdict::FitsAfter { placement, evict } => (WhatIfVerdict::After, placement, evict),
            PlacementVerdict::WaitsFor { placement, busy } => (WhatIfVerdict::Waits, placement, busy),
            PlacementVerdict::Later => {
                let (shares, stops, hints) = (Vec::new(), Vec::new(), Vec::new());
                let fits = WhatIfVerdict::Waits;
                return Some(Ok(WhatIf { fits, shares, stops, reason: None, hints, advice }));
            }
            PlacementVerdict::Unplanned(sets) => return Some(Err(sets)),
            PlacementVerdict::Never(never) => {
                let fits = if never.crowded_out { WhatIfVerdict::Crowded } else { WhatIfVerdict::Never };
                let (reason, hints, advice) = (Some(never.reason), never.hints, never.advice);
                return Some(Ok(WhatIf {
                    fits,
                    shares: Vec::new(),
                    stops: Vec::new(),
                    reason,
                    hints,
                    advice,
                }));
            }
        };
        let named = stops.iter().filter_map(|run| Some(self.model_of(*run)?.1.name.to_string()));
        let stops = named.collect();
        let shares = placement.shares;
        Some(Ok(WhatIf { fits, shares, stops, reason: None, hints: Vec::new(), advice }))
    }
}
