//! Computes the memory that an engine lacks for a longer request, and which engines could be stopped to free
//! it.

use plimsoll_base::{Bytes, CardId, Placement, RunId, Share};

use super::obstacle::needed_for;
use super::{Contention, StateRef, Tenants};
use crate::effect::RequestRefusal;
use crate::models::{RoomObstacle, RunSleep};
use crate::place::{NeedAnswers, PlacementQuery, PlacementVerdict, Reservations, place_more};
use crate::refusal;
use crate::time::{ModelId, Moment};

/// Memory that the first request of a queue needs on its run's cards.
pub(crate) struct DepthNeed {
    pub(crate) run: RunId,
    pub(crate) in_flight: u32,
    /// The run sleeps, and others have memory of its claim.
    pub(crate) asleep: bool,
    /// Memory of the run with this request and all others.
    pub(crate) needs: Vec<Share>,
    /// Memory of a fresh run with this request alone.
    pub(crate) alone: Vec<Share>,
}

impl StateRef<'_> {
    pub(crate) fn depth_need(self, id: ModelId) -> Option<DepthNeed> {
        let slot = self.model(id)?;
        if let Some(run) = slot.run.as_ref().filter(|run| run.sleep == RunSleep::Lent && run.takes_requests())
        {
            slot.line.front()?;
            let needs = run.needs_awake.clone();
            return Some(DepthNeed { run: run.id, in_flight: 0, asleep: true, alone: needs.clone(), needs });
        }
        let (run, occupancy) = slot.tracked().filter(|(run, _)| run.takes_requests())?;
        let request = self.queue.get(slot.line.front()?)?;
        // An upper bound is too coarse to stop other models for.
        let counted = request.depth.filter(|depth| depth.exact)?;
        let tokens = counted.tokens(occupancy.slots());
        Some(DepthNeed {
            run: run.id,
            in_flight: run.in_flight(),
            asleep: false,
            needs: occupancy.needs(occupancy.with(tokens)),
            alone: occupancy.needs(occupancy.alone(tokens)),
        })
    }

    /// The part of `needs` that the run does not hold yet.
    pub(crate) fn extra(self, run: RunId, needs: &[Share]) -> Placement {
        let extra = |need: &Share| {
            let occupied = self.occupied_by(run, &need.card);
            Share::new(need.card.clone(), need.bytes.saturating_sub(occupied))
        };
        let shares = needs.iter().map(extra).filter(|share| !share.bytes.is_zero());
        Placement { shares: shares.collect(), alone: false }
    }

    /// Memory of a card that the run could hold if all other unpinned models stopped.
    pub(crate) fn at_best(self, id: ModelId, card: &CardId) -> Bytes {
        let Some(account) = self.ledger.account(card) else { return Bytes::ZERO };
        let own = self.model(id).and_then(|slot| slot.run.as_ref());
        let own = own.map(|run| run.id);
        let pinned = self.models.running().filter(|(_, slot, _)| slot.is_pinned());
        let stays =
            pinned.filter(|(_, _, run)| Some(run.id) != own && !run.leaves()).map(|(_, slot, run)| {
                // A pinned run is never stopped, but its slack may be taken.
                let slack = self.slack(slot).into_iter().find(|share| share.card == *card);
                let slack = slack.map_or(Bytes::ZERO, |share| share.bytes);
                account.occupied_by(run.id).saturating_sub(slack)
            });
        account.capacity().saturating_sub(stays.sum())
    }

    pub(crate) fn within_reach(self, id: ModelId, needs: &[Share]) -> bool {
        needs.iter().all(|need| need.bytes <= self.at_best(id, &need.card))
    }

    /// The runs that stop for more memory of a running model, what it waits for until then, and the time at
    /// which another run becomes easier to stop.
    pub(crate) fn more_memory(
        self,
        id: ModelId,
        contention: &Contention,
        extra: &Placement,
        reserved: &Reservations,
    ) -> Option<(PlacementVerdict, RoomObstacle, Option<Moment>)> {
        let slot = self.model(id)?;
        let run = slot.run.as_ref()?;
        // It runs already, so that no limit of runs and no rule of company keeps it from its memory.
        let ledger = self.without_slack(self.ledger).unwrap_or_else(|| self.ledger.clone());
        let ledger = ledger.with_most_runs(None);
        let Tenants { list: mut tenants, next } = self.tenants(id, contention);
        // A run cannot make room for itself.
        tenants.retain(|tenant| tenant.run != run.id);
        tenants.iter_mut().for_each(|tenant| tenant.apart = false);
        let none = NeedAnswers::default();
        let query = PlacementQuery { port: None, ..slot.query(&run.need, &none) };
        let verdict = place_more(&query, extra, &ledger, reserved, &tenants);
        let obstacle = match &verdict {
            PlacementVerdict::FitsAfter { stop: runs, .. } => {
                let runs = needed_for(extra, runs, &ledger, reserved);
                RoomObstacle::Occupied { kept: Vec::new(), runs }
            }
            _ => RoomObstacle::Turn,
        };
        Some((verdict, obstacle, next))
    }

    /// The refusal of a front that its run's cards can never hold.
    pub(crate) fn too_deep(self, id: ModelId) -> Option<RequestRefusal> {
        let slot = self.model(id)?;
        let (_, occupancy) = slot.tracked()?;
        let depth = self.queue.get(slot.line.front()?)?.depth?;
        let at_best = |card: &CardId| self.at_best(id, card);
        Some(refusal::too_deep((id, &slot.name), depth, occupancy, self.ledger, at_best))
    }
}
