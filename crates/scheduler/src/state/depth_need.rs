//! Computes the memory that an engine lacks for a longer request, and which engines could be stopped to free
//! it.

use plimsoll_base::{Bytes, Card, CardId, Order, Placement, RunId, Share};

use super::StateRef;
use crate::effect::RequestRefusal;
use crate::models::RunSleep;
use crate::place::{Account, CardStanding, CardTenant, EvictionCandidate, Reservations, cheapest};
use crate::refusal::{self, DepthRefusal};
use crate::time::ModelId;

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
        Placement { shares: needs.iter().map(extra).collect(), alone: false }
    }

    /// Memory that is missing on a card after taking the slack of all other runs.
    pub(crate) fn lacking(self, id: ModelId, share: &Share, reserved: &Reservations) -> Bytes {
        if share.bytes.is_zero() {
            return Bytes::ZERO;
        }
        let slack = self.all_slack(Some(id));
        let slack = slack.iter().filter(|(_, slack)| slack.card == share.card);
        let slack: Bytes = slack.map(|(_, slack)| slack.bytes).sum();
        let account = self.ledger.account(&share.card);
        let lacking = |account: &Account| account.lacking(share.bytes + reserved.on(&share.card));
        account.map_or(Bytes::MAX, lacking).saturating_sub(slack)
    }

    /// Memory of a card that the run could hold if all other unpinned models stopped.
    pub(crate) fn at_best(self, id: ModelId, card: &CardId) -> Bytes {
        let Some(account) = self.ledger.account(card) else {
            return Bytes::ZERO;
        };
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

    /// All runs that leave anyway and the cheapest others that free `lacking`, and whether some of them are
    /// in use. Their slack is counted as free already.
    pub(crate) fn sufficient(
        self,
        id: ModelId,
        mut tenants: Vec<CardTenant>,
        extra: &Placement,
        lacking: &[Bytes],
    ) -> Option<(Vec<RunId>, bool)> {
        let slack = self.all_slack(Some(id));
        let frees = |run: RunId| -> Vec<Bytes> {
            let slack_on = |card: &CardId| -> Bytes {
                let of_run = slack.iter().filter(|(of, share)| *of == run && share.card == *card);
                of_run.map(|(_, share)| share.bytes).sum()
            };
            let occupied = |card: &CardId| self.occupied_by(run, card).saturating_sub(slack_on(card));
            extra.cards().map(occupied).collect()
        };
        let own = self.model(id)?.run.as_ref()?.id;
        // A run cannot make room for itself.
        tenants.retain(|tenant| tenant.run != own && tenant.standing <= CardStanding::Protected);
        tenants.order_by_key(|tenant| (tenant.standing, tenant.last_used));
        let leaves = tenants.partition_point(|tenant| tenant.standing == CardStanding::Leaving);
        let mut gone: Vec<RunId> = tenants.drain(..leaves).map(|tenant| tenant.run).collect();
        // Memory that leaving runs free need not be freed by others.
        let mut lacking = lacking.to_vec();
        for run in &gone {
            let freed = lacking.iter_mut().zip(frees(*run));
            freed.for_each(|(lacking, freed)| *lacking = lacking.saturating_sub(freed));
        }
        let candidate = |tenant: &CardTenant| EvictionCandidate {
            run: tenant.run,
            frees: frees(tenant.run),
            cost: tenant.cost,
            wait: tenant.wait,
        };
        let candidates: Vec<EvictionCandidate> = tenants.iter().map(candidate).collect();
        let chosen = cheapest(&lacking, &candidates)?;
        let in_use =
            |tenant: &CardTenant| tenant.standing != CardStanding::Idle && chosen.contains(&tenant.run);
        let waits = tenants.iter().any(in_use);
        gone.extend(chosen);
        Some((gone, waits))
    }

    /// The refusal of a front that its run's cards can never hold.
    pub(crate) fn too_deep(self, id: ModelId) -> Option<RequestRefusal> {
        let slot = self.model(id)?;
        let (_, occupancy) = slot.tracked()?;
        let depth = self.queue.get(slot.line.front()?)?.depth?;
        let needs = occupancy.needs(occupancy.alone(depth.tokens(occupancy.slots())));
        let have = |card: &CardId| self.at_best(id, card);
        let cards: Vec<Card> = needs
            .iter()
            .filter_map(|need| {
                let card = self.ledger.account(&need.card)?.card();
                let free = have(&need.card);
                Some(Card { free, ..card.clone() })
            })
            .collect();
        Some(refusal::too_deep(&DepthRefusal {
            model: id,
            name: &slot.name,
            depth,
            slots: occupancy.slots(),
            fits: occupancy.covered(have),
            loaded: occupancy.needs(0),
            needs,
            ledger: self.ledger,
            cards: &cards,
        }))
    }
}
