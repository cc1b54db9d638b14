//! A run whose next request goes deeper than its claim covers.
//!
//! It waits in one line with the models that want to be loaded, and by the same rules: what is free is taken, then what others hold
//! beyond their need, then idle runs go, the fewest that suffice, and after the patience busy ones drain. Its own requests
//! in flight may end first. A depth that the run could have with nothing else on its slots, but not with what idle slots keep, is
//! had by starting the engine afresh once it is idle. A depth that it can never have is refused at once.

use plimsoll_base::{Bytes, Card, CardId, Placement, RunId, Share};

use super::effect::Effect;
use super::model::{Deep, Drain, Model};
use super::moment::{ModelId, Moment, RequestId};
use super::refusal::{self, Depths};
use super::scheduler::Scheduler;
use crate::place::{Candidate, Holds, Standing, smallest};

/// What the front of a queue asks of its run's cards.
struct Want {
    run: RunId,
    in_flight: u32,
    /// What the run needs with it, and what it would need for it alone.
    needs: Vec<Share>,
    alone: Vec<Share>,
}

impl Scheduler {
    pub(super) fn set_deep(&mut self, id: ModelId, deep: Option<Deep>) {
        let Some(model) = self.model_mut(id) else { return };
        let enters = deep.is_some();
        let leaves = std::mem::replace(&mut model.deep, deep).is_some();
        if enters || leaves {
            self.stirred = true;
            self.fruitless.clear();
        }
        self.waiting = self.waiting + usize::from(enters) - usize::from(leaves);
    }

    /// Finds room for the front of a queue that goes deeper than its run's claim covers.
    pub(super) fn find_depth(&mut self, id: ModelId, since: Moment, holds: &mut Holds) {
        let Some(want) = self.want(id) else {
            self.set_deep(id, None);
            return self.dispatch_queue(id);
        };
        if !self.within_reach(id, &want.needs) {
            return self.beyond_reach(id, &want, holds);
        }
        let extra = self.extra(want.run, &want.needs);
        let lacking: Vec<Bytes> = extra
            .shares
            .iter()
            .map(|share| self.lacking(id, share, holds))
            .collect();
        if lacking.iter().all(|lacking| lacking.is_zero()) {
            return self.go_deeper(id, &want, &extra, holds);
        }
        self.make_others_go(id, since, &extra, &lacking, holds);
    }

    fn want(&self, id: ModelId) -> Option<Want> {
        let model = self.model(id)?;
        let (run, occupancy) = model.watched().filter(|(run, _)| run.takes_requests())?;
        let request = self.requests.get(model.queue.front()?)?;
        let counted = request.depth.filter(|depth| depth.exact)?;
        let tokens = counted.tokens(occupancy.slots());
        Some(Want {
            run: run.id,
            in_flight: run.in_flight,
            needs: occupancy.needs(occupancy.with(tokens)),
            alone: occupancy.needs(occupancy.alone(tokens)),
        })
    }

    /// What the run lacks of `needs`, whoever has it.
    fn extra(&self, run: RunId, needs: &[Share]) -> Placement {
        let extra = |need: &Share| {
            let held = self.held_by(run, &need.card);
            Share::new(need.card.clone(), need.bytes.saturating_sub(held))
        };
        Placement {
            shares: needs.iter().map(extra).collect(),
            alone: false,
        }
    }

    /// What lacks on a card when all that others hold beyond their need is taken.
    fn lacking(&self, id: ModelId, share: &Share, holds: &Holds) -> Bytes {
        let spare = self.spare(Some(id));
        let spare = spare.iter().filter(|(_, spare)| spare.card == share.card);
        let spare: Bytes = spare.map(|(_, spare)| spare.bytes).sum();
        let free = self
            .ledger
            .account(&share.card)
            .map_or(Bytes::ZERO, |account| account.free());
        match share.bytes.is_zero() {
            true => Bytes::ZERO,
            false => (share.bytes + holds.on(&share.card)).saturating_sub(free + spare),
        }
    }

    /// What a card has for the run when everybody who can go has gone.
    fn at_best(&self, id: ModelId, card: &CardId) -> Bytes {
        let Some(account) = self.ledger.account(card) else {
            return Bytes::ZERO;
        };
        let pinned = self.models.iter().flatten().filter(|model| model.spec.pinned);
        let own = self
            .model(id)
            .and_then(|model| model.run.as_ref())
            .map(|run| run.id);
        let stays = pinned.filter_map(|model| {
            let run = model
                .run
                .as_ref()
                .filter(|run| Some(run.id) != own && !run.leaves())?;
            let spare = self.slack(model).into_iter().find(|share| share.card == *card);
            let spare = spare.map_or(Bytes::ZERO, |share| share.bytes);
            Some(account.held_by(run.id).saturating_sub(spare))
        });
        account.capacity().saturating_sub(stays.sum())
    }

    fn within_reach(&self, id: ModelId, needs: &[Share]) -> bool {
        needs
            .iter()
            .all(|need| need.bytes <= self.at_best(id, &need.card))
    }

    /// With what the run has, the front can never be let in: it waits for that to end, or for an engine that is fresh.
    fn beyond_reach(&mut self, id: ModelId, want: &Want, holds: &mut Holds) {
        if !self.within_reach(id, &want.alone) {
            let refusal = self.too_deep(id);
            self.set_deep(id, None);
            if let Some(refusal) = refusal {
                self.refuse_front(id, refusal);
            }
            return self.dispatch_queue(id);
        }
        self.set_victims(id, Vec::new());
        holds.hold(&self.extra(want.run, &want.alone), &[], &self.ledger);
        if want.in_flight == 0 {
            if let Some(run) = self.model_mut(id).and_then(|model| model.run.as_mut()) {
                run.afresh = true;
            }
            self.drain(id, Drain::Leave);
        }
    }

    fn go_deeper(&mut self, id: ModelId, want: &Want, extra: &Placement, holds: &Holds) {
        self.take_slack(Some(id), extra, holds);
        for need in &want.needs {
            self.ledger.raise(want.run, &need.card, need.bytes);
            self.claimed(want.run, &need.card);
        }
        self.set_deep(id, None);
        self.dispatch_queue(id);
    }

    fn make_others_go(
        &mut self,
        id: ModelId,
        since: Moment,
        extra: &Placement,
        lacking: &[Bytes],
        holds: &mut Holds,
    ) {
        let fed_up = since + self.settings.patience;
        let worst = match self.now < fed_up {
            true => Standing::Idle,
            false => Standing::Protected,
        };
        let Some(victims) = self.sufficient(id, extra, lacking, worst) else {
            self.set_victims(id, Vec::new());
            if self.now < fed_up {
                self.arm(fed_up);
            }
            return;
        };
        holds.hold(extra, &victims, &self.ledger);
        for run in &victims {
            if let Some(model) = self.living.get(run).copied() {
                self.make_go(model);
            }
        }
        if let Some(deep) = self.model_mut(id).and_then(|model| model.deep.as_mut()) {
            deep.victims = victims;
            deep.needs = extra.total();
        }
    }

    /// All who leave anyway and the fewest others, none of them less ready to go than `worst`. What they hold beyond their
    /// need is counted already.
    fn sufficient(
        &self,
        id: ModelId,
        extra: &Placement,
        lacking: &[Bytes],
        worst: Standing,
    ) -> Option<Vec<RunId>> {
        let spare = self.spare(Some(id));
        let frees = |run: RunId| -> Vec<Bytes> {
            let spare_on = |card: &CardId| -> Bytes {
                let of_run = spare
                    .iter()
                    .filter(|(of, share)| *of == run && share.card == *card);
                of_run.map(|(_, share)| share.bytes).sum()
            };
            let held = |card: &CardId| self.held_by(run, card).saturating_sub(spare_on(card));
            extra.cards().map(held).collect()
        };
        let own = self.model(id)?.run.as_ref()?.id;
        let mut tenants = self.tenants(id);
        tenants.retain(|tenant| tenant.run != own && tenant.standing <= worst);
        tenants.sort_by_key(|tenant| (tenant.standing, tenant.last_used));
        let leaves = tenants.partition_point(|tenant| tenant.standing == Standing::Leaving);
        let mut gone: Vec<RunId> = tenants.drain(..leaves).map(|tenant| tenant.run).collect();
        let mut lacking = lacking.to_vec();
        for run in &gone {
            let freed = lacking.iter_mut().zip(frees(*run));
            freed.for_each(|(lacking, freed)| *lacking = lacking.saturating_sub(freed));
        }
        let candidates: Vec<Candidate> = tenants
            .iter()
            .map(|tenant| Candidate {
                run: tenant.run,
                frees: frees(tenant.run),
            })
            .collect();
        gone.extend(smallest(&lacking, &candidates)?);
        Some(gone)
    }

    /// Why the front of the queue can never be let in.
    fn too_deep(&self, id: ModelId) -> Option<super::Refusal> {
        let model = self.model(id)?;
        let (run, occupancy) = model.watched()?;
        let depth = self.requests.get(model.queue.front()?)?.depth?;
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
        Some(refusal::too_deep(&Depths {
            name: &model.name,
            depth,
            slots: occupancy.slots(),
            fits: occupancy.covered(have),
            loaded: occupancy.needs(0),
            needs,
            ledger: &self.ledger,
            cards: &cards,
            hints: run.demand.hints(&cards),
        }))
    }

    /// The front of the queue wants nothing beyond the claim, or is gone.
    pub(super) fn surface(&mut self, id: ModelId) {
        if self.model(id).is_some_and(|model| model.deep.is_some()) {
            self.set_deep(id, None);
        }
    }

    /// The front of the queue goes deeper than the claim covers: it waits, and is looked at with all who wait.
    pub(super) fn wait_for_depth(&mut self, id: ModelId) {
        let waits = self.model(id).is_some_and(|model: &Model| model.deep.is_some());
        if !waits {
            self.set_deep(id, Some(Deep::default()));
        } else {
            self.stirred = true;
            self.fruitless.clear();
        }
    }

    /// Sends the front of a queue to its run.
    pub(super) fn send(&mut self, id: RequestId, run: RunId) {
        let depth = self.requests.get(&id).and_then(|request| request.depth);
        let model = self.requests.get(&id).map(|request| request.model);
        if let Some(model) = model.and_then(|model| self.model_mut(model))
            && let Some(Ok(occupancy)) = model.run.as_mut().map(|run| run.occupancy.as_mut())
        {
            match depth.map_or(occupancy.slots().each, |depth| depth.tokens(occupancy.slots())) {
                0 => {}
                tokens => occupancy.enter(id, tokens),
            }
        }
        self.emit(Effect::Dispatch { request: id, run });
    }
}
