//! Eviction rank of each run (engine process) that holds card memory, from runs that are already ending to pinned ones.

use std::collections::BTreeSet;

use plimsoll_base::{Company, DeclaredSize, Placement, RunId, RunningModel};

use super::StateRef;
use crate::models::{ModelSlot, RunPhase, RunState};
use crate::place::{
    Account, CardStanding, CardTenant, Ledger, PlacementQuery, PlacementVerdict, Reservations, place,
};
use crate::time::{ModelId, Moment};

/// Result of a search for room.
pub(crate) struct RoomVerdict {
    pub(crate) verdict: PlacementVerdict,
    /// Runs whose memory must be free again before the model starts.
    pub(crate) barred: Vec<RunId>,
    /// The placement after the yields that it waits for.
    pub(crate) after_yields: Option<Box<AfterYields>>,
}

pub(crate) struct AfterYields {
    pub(crate) ledger: Ledger,
    pub(crate) verdict: PlacementVerdict,
}

impl StateRef<'_> {
    /// Finds cards for a waiting model, and the runs that must have ended before it may use them.
    ///
    /// The unused part of other runs' claims (slack) counts as free: it is taken before any run is stopped.
    pub(crate) fn verdict(self, id: ModelId, reserved: &Reservations) -> Option<RoomVerdict> {
        let slot = self.model(id)?;
        let room = slot.room()?;
        let after = room.after.iter().copied();
        let barred = after.filter(|run| self.runs.holds_memory(*run)).collect();
        let known = slot.record.measured.filter(|_| room.demand.alone());
        let known = known.map(DeclaredSize);
        let query = PlacementQuery {
            name: &slot.name,
            demand: known.as_ref().map_or(&*room.demand, |known| known),
            cache: &room.cache,
            learned: slot.record.learned(),
            allowed: &slot.spec.allowed,
            named: room.demand.named(),
            port: slot.spec.port,
            apart: reserved.models().iter().filter(|other| self.excludes(slot, **other)).count(),
        };
        let tenants = self.tenants(id);
        let verdict = match place(&query, self.ledger, reserved, &tenants) {
            fits @ PlacementVerdict::Fits(_) => fits,
            // Only if the model does not fit otherwise: building this ledger costs a copy.
            other => match self.without_slack() {
                Some(ledger) => place(&query, &ledger, reserved, &tenants),
                None => other,
            },
        };
        // The memory that it needs may be kept free for other processes, and no longer than its client waits.
        let is_crowded = matches!(&verdict, PlacementVerdict::Never(never) if never.crowded_out);
        let later = is_crowded.then(|| self.after_yields(slot)).flatten().map(|ledger| {
            let verdict = place(&query, &ledger, reserved, &tenants);
            Box::new(AfterYields { ledger, verdict })
        });
        let after_yields = later.filter(|later| !matches!(later.verdict, PlacementVerdict::Never(_)));
        let verdict = if after_yields.is_some() { PlacementVerdict::Later } else { verdict };
        Some(RoomVerdict { verdict, barred, after_yields })
    }

    /// The ledger after the yields that end before the last of the model's requests gives up; `None` without any.
    fn after_yields(self, slot: &ModelSlot) -> Option<Ledger> {
        let requests = slot.line.iter().filter_map(|id| self.queue.get(id));
        let last = requests.map(|request| request.deadline).max()?;
        let ends = |account: &Account| account.kept().is_some_and(|kept| kept.until < last);
        let mut ledger = self.ledger.accounts().iter().any(ends).then(|| self.ledger.clone())?;
        ledger.end_kept(last);
        Some(ledger)
    }

    /// Runs that hold memory, with their readiness to stop for the model `asking`. A run whose own next
    /// request has waited longer does not stop for it; otherwise two waiting models could stop each other for
    /// ever.
    pub(crate) fn tenants(self, asking: ModelId) -> Vec<CardTenant> {
        // Memory of a run that stops for another model goes to that one.
        let promised = self.victims_of(|id| id != asking);
        let own = self.victims_of(|id| id == asking);
        let age = |id: ModelId| self.model(id).map(|slot| (self.waits_since(slot), id));
        let asked = age(asking);
        let since = asked.map_or(Moment::NEVER, |(since, _)| since);
        let standing_of =
            |run: RunId, standing: CardStanding| match promised.contains(&run) && !own.contains(&run) {
                true => CardStanding::Promised,
                false => standing,
            };
        let gone = self.runs.leaving().map(|run| CardTenant {
            run,
            standing: standing_of(run, CardStanding::Leaving),
            // It leaves in any case, so that its order does not matter.
            last_used: 0,
            cost: 0,
            is_pinned_by_file: false,
            // Its process has ended.
            port: None,
            apart: false,
        });
        let apart = self.apart_from(asking);
        let own_company = self.model(asking).map(|slot| &slot.spec.company);
        let here = self.models.running().map(|(id, slot, run)| {
            let stays = own_company.is_some_and(|own| slot.spec.company.stays_for(own));
            CardTenant {
                run: run.id,
                standing: match self.standing(slot, run, since) {
                    standing if stays && standing != CardStanding::Leaving => CardStanding::Stays,
                    _ if slot.depth_wait().is_some() && age(id) < asked => CardStanding::Promised,
                    standing => standing_of(run.id, standing),
                },
                last_used: run.stamp,
                cost: self.eviction_cost(slot, run),
                is_pinned_by_file: slot.spec.pinned || stays,
                port: run.port,
                apart: apart.contains(&run.id),
            }
        });
        gone.chain(here).collect()
    }

    /// Runs that have to end before the model loads, whatever memory is free.
    pub(super) fn apart_from(self, asking: ModelId) -> Vec<RunId> {
        let Some(own) = self.model(asking).filter(|slot| slot.spec.company != Company::default()) else {
            return Vec::new();
        };
        let others: Vec<_> = self.models.running().filter(|(id, ..)| *id != asking).collect();
        let running: Vec<RunningModel<'_>> = others
            .iter()
            .map(|(_, slot, run)| RunningModel {
                name: &slot.name,
                company: &slot.spec.company,
                cost: self.eviction_cost(slot, run),
            })
            .collect();
        let leave = own.spec.company.leave_for(&own.name, &running);
        others.iter().zip(leave).filter(|(_, leaves)| *leaves).map(|((.., run), _)| run.id).collect()
    }

    /// Readiness of a run to stop for a model that is wanted since then.
    pub(crate) fn standing(self, slot: &ModelSlot, run: &RunState, asked: Moment) -> CardStanding {
        match run.phase {
            _ if run.leaves() => CardStanding::Leaving,
            _ if slot.is_pinned() => CardStanding::Stays,
            _ if run.draining.is_some() => CardStanding::Leaving,
            _ if self.is_measured(&run.placement, run.id) => CardStanding::Protected,
            // All clients have left during the load. A preload has no client from the start; the operator
            // wants it.
            RunPhase::Loading { .. } if !slot.pressing() && !run.preloaded => CardStanding::Idle,
            RunPhase::Ready { .. }
                if run.in_flight() == 0
                    && slot.line.is_empty()
                    && self.held_until(slot).is_none_or(|until| until <= self.now) =>
            {
                CardStanding::Idle
            }
            RunPhase::Ready { since, .. }
                if (run.owed.min(slot.line.len()) == 0 || slot.depth_wait().is_some())
                    && self.now >= since + self.protection(slot, run.started > asked) =>
            {
                CardStanding::Busy
            }
            _ => CardStanding::Protected,
        }
    }

    /// Runs that stop for any of these models.
    pub(crate) fn victims_of(self, which: impl Fn(ModelId) -> bool) -> BTreeSet<RunId> {
        let models = self.models.iter().filter(|(id, _)| which(*id));
        models.flat_map(|(_, slot)| slot.victims()).copied().collect()
    }

    /// True if a reading of the cards is needed before the placement may be carried out.
    pub(crate) fn needs_reading(placement: &Placement) -> bool {
        placement.shares.iter().any(|share| !share.bytes.is_zero())
    }
}
