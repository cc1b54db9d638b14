//! Ranks the engine processes on a card by how readily they are stopped: those already ending first, pinned
//! ones last.

use std::time::Duration;

use plimsoll_base::{Company, Placement, RunId, RunningModel};

use super::StateRef;
use super::swap::{Contention, RunFacts, SwapCase, milliseconds, number};
use crate::models::{Drain, ModelSlot, RoomObstacle, RunPhase, RunState};
use crate::place::{
    Account, CardStanding, CardTenant, Ledger, PlacementQuery, PlacementVerdict, Reservations, place,
};
use crate::time::{ModelId, Moment};

/// Cost of a second drain for one model: only a run that is free at once is worth to give up a drain under
/// way.
const SECOND_DRAIN: u64 = 3_600_000;

/// Result of a search for room.
pub(crate) struct RoomVerdict {
    pub(crate) verdict: PlacementVerdict,
    /// Runs whose memory must be free again before the model starts.
    pub(crate) barred: Vec<RunId>,
    /// What it waits for.
    pub(crate) obstacle: RoomObstacle,
    /// The time at which a run becomes easier to stop.
    pub(crate) next: Option<Moment>,
}

/// Runs that hold memory, and the time at which one of them becomes easier to stop.
pub(crate) struct Tenants {
    pub(crate) list: Vec<CardTenant>,
    pub(crate) next: Option<Moment>,
}

/// A run's readiness to stop for a model.
pub(crate) struct Prospect {
    pub(crate) standing: CardStanding,
    /// Milliseconds that its clients lose by its next load, and that those who wait lose until it is free.
    pub(crate) cost: u64,
    wait: u64,
    /// The end of its hold or of its turn; [`Moment::NEVER`] if both are over.
    next: Moment,
}

impl StateRef<'_> {
    /// Finds cards for a waiting model, and the runs that must have ended before it may use them.
    ///
    /// The unused part of other runs' claims (slack) counts as free: it is taken before any run is stopped.
    pub(crate) fn verdict(
        self,
        id: ModelId,
        contention: &Contention,
        reserved: &Reservations,
    ) -> Option<RoomVerdict> {
        let slot = self.model(id)?;
        let room = slot.room()?;
        let after = room.after.iter().copied();
        let barred: Vec<RunId> = after.filter(|run| self.runs.holds_memory(*run)).collect();
        let need = slot.known_need(&room.need);
        let apart = reserved.models().iter().filter(|other| self.excludes(slot, **other)).count();
        let query = PlacementQuery { apart, ..slot.query(&need, &room.plan.answers) };
        let Tenants { list: tenants, next } = self.tenants(id, contention);
        let verdict = self.placed(&query, self.ledger, reserved, &tenants);
        // The memory that it needs may be kept free for other processes, and no longer than its client waits.
        let is_crowded = matches!(&verdict, PlacementVerdict::Never(never) if never.crowded_out);
        let later = is_crowded.then(|| self.after_yields(slot)).flatten();
        let later = later.map(|ledger| (place(&query, &ledger, reserved, &tenants), ledger));
        if let Some((later, ledger)) = later.filter(|(later, _)| !matches!(later, PlacementVerdict::Never(_)))
        {
            let obstacle = self.obstacle_of_yields(&later, &ledger, reserved);
            return Some(RoomVerdict { verdict: PlacementVerdict::Later, barred, obstacle, next });
        }
        let obstacle = self.obstacle(id, &verdict, &barred, reserved);
        Some(RoomVerdict { verdict, barred, obstacle, next })
    }

    /// Places a model, and takes the unused parts of claims before it stops any run.
    pub(super) fn placed(
        self,
        query: &PlacementQuery<'_>,
        ledger: &Ledger,
        reserved: &Reservations,
        tenants: &[CardTenant],
    ) -> PlacementVerdict {
        match place(query, ledger, reserved, tenants) {
            known @ (PlacementVerdict::Fits(_) | PlacementVerdict::Unplanned(_)) => known,
            // Only if the model does not fit otherwise: building this ledger costs a copy.
            other => match self.without_slack(ledger) {
                Some(ledger) => place(query, &ledger, reserved, tenants),
                None => other,
            },
        }
    }

    /// The ledger after the yields that end before the last of the model's requests gives up; `None` without
    /// any.
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
    pub(crate) fn tenants(self, asking: ModelId, contention: &Contention) -> Tenants {
        // Memory of a run that stops for another model goes to that one.
        let promised = self.victims_of(|id| id != asking);
        let own = self.victims_of(|id| id == asking);
        let case = self.swap_case(asking);
        let age = |id: ModelId| self.model(id).map(|slot| (self.waits_since(slot), id));
        let requested = age(asking);
        let drains = |run: &RunState| {
            run.draining.is_some() && own.contains(&run.id) && self.is_draining_for_model(run)
        };
        let mut next = Moment::NEVER;
        let is_second = !own.is_empty() && self.models.running().any(|(_, _, run)| drains(run));
        let standing_of = |run: RunId, standing: CardStanding| {
            if promised.contains(&run) && !own.contains(&run) { CardStanding::Promised } else { standing }
        };
        // They leave in any case, so that neither their order nor their cost matters.
        let gone = self.runs.leaving.iter().map(|&run| CardTenant {
            run,
            standing: standing_of(run, CardStanding::Leaving),
            ..CardTenant::default()
        });
        let apart = self.apart_from(asking);
        let own_company = self.model(asking).map(|slot| &slot.spec.company);
        let running = self.models.running().zip(&contention.runs);
        let here = running.map(|((id, slot, run), facts)| {
            let stays = own_company.is_some_and(|own| slot.spec.company.stays_for(own));
            let Prospect { standing, cost, mut wait, next: change } = self.prospect(case, facts, slot, run);
            next = next.min(change);
            let standing = match standing {
                standing if stays && standing != CardStanding::Leaving => CardStanding::Stays,
                _ if slot.depth_wait().is_some() && age(id) < requested => CardStanding::Promised,
                _ if drains(run) => {
                    // Its clients are kept out already.
                    wait = milliseconds(facts.free.since(self.now)).saturating_mul(case.waiters);
                    CardStanding::Busy
                }
                standing => standing_of(run.id, standing),
            };
            CardTenant {
                run: run.id,
                standing,
                last_used: run.stamp,
                cost: if is_second && wait > 0 && !drains(run) { cost + SECOND_DRAIN } else { cost },
                wait,
                is_pinned_by_file: slot.spec.pinned || stays,
                port: run.port,
                apart: apart.contains(&run.id),
            }
        });
        let mut list = Vec::with_capacity(contention.runs.len() + self.runs.leaving.len());
        list.extend(gone);
        list.extend(here);
        Tenants { list, next: Some(next).filter(|next| *next != Moment::NEVER) }
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

    /// True for a run that finishes its requests for another model.
    pub(crate) fn is_draining_for_model(self, run: &RunState) -> bool {
        let drains = run.draining == Some(Drain::Evict) && !run.leaves() && run.in_flight() > 0;
        drains && !self.yielding.contains_key(&run.id)
    }

    /// A run's readiness to stop for the model of the case, and what that costs.
    pub(crate) fn prospect(
        self,
        case: SwapCase,
        facts: &RunFacts,
        slot: &ModelSlot,
        run: &RunState,
    ) -> Prospect {
        let turn = facts.turn_end(case);
        let hold_end = facts.hold_end.map(|end| end.min(turn)).filter(|end| *end > self.now);
        let standing = standing(facts, slot, run, hold_end, turn <= self.now);
        let (load, free, clients) = (facts.cost, facts.free.since(self.now), number(facts.clients));
        let goes_on = run.is_idle() || slot.pauses.is_series() || clients > 1;
        let (clients, wait) = match standing {
            CardStanding::Busy => (clients, free),
            CardStanding::Protected if goes_on => {
                let answer =
                    if run.is_idle() { Duration::ZERO } else { slot.answer_time.unwrap_or_default() };
                (clients, free.max(hold_end.unwrap_or(turn).since(self.now) + answer))
            }
            CardStanding::Protected => (1, free),
            _ => (1, Duration::ZERO),
        };
        let cost = load.saturating_mul(clients);
        let wait = milliseconds(wait).saturating_mul(case.waiters);
        Prospect {
            standing,
            cost,
            wait,
            next: hold_end.unwrap_or(Moment::NEVER).min(if turn > self.now { turn } else { Moment::NEVER }),
        }
    }

    /// Whether a run stops for the model without a wait for clients, and when the next one would.
    pub(crate) fn idle_for(self, contention: &Contention, asking: ModelId) -> (bool, Moment) {
        let case = self.swap_case(asking);
        let may_be_idle = |slot: &ModelSlot, run: &RunState| match run.phase {
            RunPhase::Loading { .. } => !slot.pressing(),
            _ => run.in_flight() == 0 && slot.line.is_empty(),
        };
        let running = self.models.running().zip(&contention.runs);
        let running = running.filter(|((_, slot, run), _)| may_be_idle(slot, run));
        let prospects = running.map(|((_, slot, run), facts)| self.prospect(case, facts, slot, run));
        prospects.fold((false, Moment::NEVER), |(any, next), prospect| {
            (any || prospect.standing == CardStanding::Idle, next.min(prospect.next))
        })
    }

    /// Runs that stop for any of these models.
    pub(crate) fn victims_of(self, which: impl Fn(ModelId) -> bool) -> Vec<RunId> {
        let models = self.models.waiting().filter(|(id, _)| which(*id));
        models.flat_map(|(_, slot)| slot.victims()).copied().collect()
    }

    /// True if a reading of the cards is needed before the placement may be carried out.
    pub(crate) fn needs_reading(placement: &Placement) -> bool {
        placement.shares.iter().any(|share| !share.bytes.is_zero())
    }
}

fn standing(
    facts: &RunFacts,
    slot: &ModelSlot,
    run: &RunState,
    hold_end: Option<Moment>,
    turn_is_over: bool,
) -> CardStanding {
    let is_idle = run.in_flight() == 0 && slot.line.is_empty();
    match run.phase {
        _ if run.leaves() => CardStanding::Leaving,
        _ if slot.is_pinned() => CardStanding::Stays,
        _ if run.draining.is_some() => CardStanding::Leaving,
        _ if facts.is_measured => CardStanding::Protected,
        // A preload, or a load whose clients have left.
        RunPhase::Loading { .. } if !slot.pressing() => CardStanding::Idle,
        RunPhase::Ready { .. } if is_idle && hold_end.is_none() => CardStanding::Idle,
        RunPhase::Ready { .. } => {
            // A new run is sent the first request that it was loaded for.
            let is_new = run.is_unused() && !slot.line.is_empty() && slot.depth_wait().is_none();
            if is_new || !turn_is_over { CardStanding::Protected } else { CardStanding::Busy }
        }
        _ => CardStanding::Protected,
    }
}
