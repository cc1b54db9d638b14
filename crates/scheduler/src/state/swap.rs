//! Decides when a model gives up its memory for another, by the time that clients lose.
//!
//! A run keeps its memory while its clients go on, until those that wait have lost as much time as a swap
//! costs.

use std::time::Duration;

use plimsoll_base::{Bytes, Priority, Reason, RunId, counted};

use super::StateRef;
use crate::models::{ModelSlot, RunPhase, RunState};
use crate::place::CardStanding;
use crate::time::{ModelId, Moment};

/// A client's patience with a run that is quick to load again, in quarters of that load.
const QUICK_PATIENCE: u32 = 5;
/// It is never less than this.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
/// A client that left while it waited and is expected again counts as several: its tries in vain are lost as
/// well.
const RETRY_WEIGHT: u64 = 3;
/// Waiting requests that are looked at: of one priority of a model, and of all models.
const WAIT_SAMPLE: (usize, usize) = (8, 32);
/// Rest of an answer of a model that has not completed one.
const UNKNOWN_REST: Duration = Duration::from_secs(1);

/// The wait of a client.
#[derive(Clone, Copy, Debug)]
struct ClientWait {
    since: Moment,
    weight: u64,
    /// Clients that wait with it.
    count: u64,
    model: ModelId,
    /// It may use some cards only.
    is_restricted: bool,
}

/// All clients that wait for memory, and the runs that hold it: the same for each model that asks, until a
/// run or a line changes.
#[derive(Debug)]
pub(crate) struct Contention {
    /// The oldest first.
    waits: Vec<ClientWait>,
    /// In the order of their models.
    pub(crate) runs: Vec<RunFacts>,
}

/// The time that is lost while a run keeps its memory, from the start of one client's loss on.
#[derive(Clone, Copy, Debug)]
struct WaitLoss {
    start: Moment,
    /// Milliseconds that those before it have lost until then.
    lost: u64,
    /// Clients that lose from then on, by their weights.
    slope: u64,
    heaviest: u64,
}

/// Cost of the swap of a run, whichever model asks for its memory.
#[derive(Clone, Debug)]
pub(crate) struct RunFacts {
    model: ModelId,
    weight: u64,
    /// The losses of those that wait and may use its cards, in the order in which they begin: each at its
    /// arrival, or the start of the turn, and the patience.
    losses: Vec<WaitLoss>,
    /// A start on its cards measures their free memory.
    pub(crate) is_measured: bool,
    /// Clients that go on.
    pub(crate) clients: usize,
    /// Time of its next load.
    reload: Duration,
    /// The time that a client waits for its memory before the client loses.
    patience: Duration,
    /// The end of its hold.
    pub(crate) hold_end: Option<Moment>,
    /// The time at which its requests are expected to have ended, if it gets no more.
    pub(crate) free: Moment,
    /// Milliseconds of its next load, less if it is less likely to be loaded again.
    pub(crate) cost: u64,
}

/// One model's want of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwapCase {
    load: Duration,
    /// Clients of that model that wait: one at least, the client for which it asks.
    pub(crate) waiters: u64,
}

impl ClientWait {
    fn new(model: ModelId, slot: Option<&ModelSlot>, request: Priority, since: Moment) -> Self {
        let priority = slot.map_or(Priority::Normal, |slot| slot.spec.priority);
        let is_restricted = slot.is_some_and(|slot| !slot.spec.allowed.is_empty());
        Self { since, weight: weight(priority, request), count: 1, model, is_restricted }
    }

    /// The losses with this wait, which begins to lose after those before it; not before `earliest`.
    fn after(&self, before: Option<&WaitLoss>, earliest: Moment, patience: Duration) -> WaitLoss {
        let start = (self.since + patience).max(earliest);
        let (lost, slope, heaviest) = before.map_or((0, 0, 1), |before| {
            let more = milliseconds(start.since(before.start)).saturating_mul(before.slope);
            (before.lost.saturating_add(more), before.slope, before.heaviest)
        });
        WaitLoss { start, lost, slope: slope + self.weight * self.count, heaviest: heaviest.max(self.weight) }
    }
}

impl Contention {
    /// The facts of the model's run.
    pub(crate) fn run_of(&self, model: ModelId) -> Option<&RunFacts> {
        let place = self.runs.binary_search_by_key(&model, |facts| facts.model).ok()?;
        self.runs.get(place)
    }
}

impl RunFacts {
    // DECISION: the rule of ski rental. To stop at once costs a swap that may be in vain, and to wait for
    // ever starves the others. A run that leaves when both costs are equal loses at most twice what a
    // schedule would that knows the future.
    /// The end of the run's turn: since it was ready, those that wait have lost as much as a swap costs its
    /// clients. Each of them grants the patience first.
    pub(super) fn turn_end(&self, case: SwapCase) -> Moment {
        let swap = case.load.saturating_add(self.reload);
        let cost = milliseconds(swap).saturating_mul(self.weight).saturating_mul(number(self.clients));
        // Those beyond would lose nothing before the turn is over.
        let counted = self.losses.partition_point(|loss| loss.lost < cost).max(1);
        let (Some(first), Some(last)) = (self.losses.first(), self.losses.iter().take(counted).next_back())
        else {
            return Moment::NEVER;
        };
        let rest = cost.saturating_sub(last.lost).checked_div(last.slope).unwrap_or(0);
        // At the latest after five quarters of a swap; after two swaps for a higher priority than theirs who
        // wait.
        let quarters = if self.weight >= last.heaviest.saturating_mul(2) { 8 } else { 5 };
        let latest = first.start + swap.saturating_mul(quarters) / 4;
        latest.min(last.start + Duration::from_millis(rest))
    }
}

fn weight(model: Priority, request: Priority) -> u64 {
    let of = |priority| match priority {
        Priority::High => 4,
        Priority::Normal => 2,
        Priority::Low => 1,
    };
    of(model) * of(request)
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    // In 64 bits, which is many times faster than `as_millis`.
    time.as_secs().saturating_mul(1000).saturating_add(time.subsec_millis().into())
}

pub(super) fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Clients of a run that go on: those with an open request, and those that had one lately; `most` wait for no
/// other model.
fn clients(slot: &ModelSlot, most: usize) -> usize {
    slot.open_requests().max(slot.open.lately().min(most)).max(1)
}

/// True if the model has no run that clients can use, or will be able to use without another swap.
fn is_unserved(slot: &ModelSlot) -> bool {
    let serves = |run: &RunState| run.takes_requests() || run.is_loading();
    slot.depth_wait().is_some() || !slot.run.as_ref().is_some_and(serves)
}

impl StateRef<'_> {
    /// All that wait, and all runs.
    pub(crate) fn contention(self) -> Contention {
        self.contention_with(None)
    }

    /// The same, as if a client waited for this model as well.
    pub(crate) fn contention_with(self, asking: Option<ModelId>) -> Contention {
        let unserved = self.models.iter().filter(|(_, slot)| slot.pressing() && is_unserved(slot));
        let mut waits: Vec<ClientWait> = Vec::new();
        unserved.for_each(|(id, slot)| self.push_waits(&mut waits, id, slot));
        let asking = asking.filter(|id| waits.iter().all(|wait| wait.model != *id));
        waits.extend(asking.map(|id| ClientWait::new(id, self.model(id), Priority::Normal, self.now)));
        waits.sort_unstable_by_key(|wait| wait.since);
        waits.truncate(WAIT_SAMPLE.1);
        let served = self.models.running().filter(|(_, slot, _)| !is_unserved(slot));
        let elsewhere = self.queue.queued() - served.map(|(_, slot, _)| slot.line.len()).sum::<usize>();
        let most = self.queue.open_at_most().saturating_sub(elsewhere);
        let all_wait = self.all_wait();
        let runs = self.models.running().map(|(model, slot, run)| {
            let begins = match run.phase {
                RunPhase::Loading { .. } => self.now.max(run.started + self.expected_load(slot)),
                _ => run.ready_at.unwrap_or(self.now),
            };
            // Its turn begins when it is ready.
            let reload = self.expected_load(slot);
            let patience = self.patience_with(reload);
            let mut losses: Vec<WaitLoss> = Vec::with_capacity(waits.len());
            for wait in waits.iter().filter(|wait| self.may_use(wait, model, run)) {
                losses.push(wait.after(losses.last(), begins + patience, patience));
            }
            RunFacts {
                model,
                weight: weight(slot.spec.priority, Priority::Normal),
                losses,
                is_measured: self.is_measured(&run.placement, run.id),
                clients: clients(slot, most),
                reload,
                patience,
                hold_end: self.kept_until(slot, all_wait),
                free: self.free_at(slot, run),
                cost: self.eviction_cost(slot, run),
            }
        });
        let runs = runs.collect();
        Contention { waits, runs }
    }

    fn may_use(self, wait: &ClientWait, model: ModelId, run: &RunState) -> bool {
        let allowed = |slot: &ModelSlot| run.placement.cards().any(|card| slot.spec.allowed.contains(card));
        wait.model != model && (!wait.is_restricted || self.model(wait.model).is_some_and(allowed))
    }

    /// Adds the clients that wait for the model.
    fn push_waits(self, all: &mut Vec<ClientWait>, model: ModelId, slot: &ModelSlot) {
        let wait = |(of, since)| ClientWait::new(model, Some(slot), of, since);
        let first = all.len();
        all.extend(slot.line.waits(WAIT_SAMPLE.0).map(wait));
        let waits = &mut all[first..];
        let unseen = slot.line.len().saturating_sub(waits.len());
        if let Some(last) = waits.last_mut() {
            last.count += number(unseen);
        }
        let left = slot.left.map(|left| left.since);
        match (waits.iter_mut().min_by_key(|wait| wait.since), left) {
            // The client that left and came again.
            (Some(oldest), Some(since)) => {
                (oldest.since, oldest.count) = (oldest.since.min(since), RETRY_WEIGHT);
            }
            (None, Some(since)) => {
                all.push(ClientWait { count: RETRY_WEIGHT, ..wait((Priority::Normal, since)) });
            }
            _ => {}
        }
        all.extend(slot.load_wanted.map(|since| wait((Priority::Normal, since))));
        // A suspect alone in its line does not count as waiting: it is tried last.
        if all.len() == first {
            all.push(wait((Priority::Normal, self.now)));
        }
    }

    /// The case of a model that asks for memory, or would ask now.
    pub(crate) fn swap_case(self, asking: ModelId) -> SwapCase {
        let slot = self.model(asking);
        let load = slot.map_or(Duration::ZERO, |slot| self.expected_load(slot));
        SwapCase { load, waiters: number(slot.map_or(1, |slot| slot.line.len().max(1))) }
    }

    // DECISION: patience is a bound, and not more than a load is worth. With loads of a second, five seconds
    // of grace for each turn would be most of what a client waits.
    fn patience_with(self, reload: Duration) -> Duration {
        self.settings.patience.min(LEAST_PATIENCE.max(reload * QUICK_PATIENCE / 4))
    }

    /// Time of a model's next load. One that was never loaded is expected to take the mean of the others.
    pub(crate) fn expected_load(self, slot: &ModelSlot) -> Duration {
        let mean = || self.models.mean_load_time().unwrap_or(self.settings.patience);
        slot.load_time.unwrap_or_else(mean)
    }

    /// The time at which a run's requests are expected to have ended, if it gets no more.
    fn free_at(self, slot: &ModelSlot, run: &RunState) -> Moment {
        let usual = slot.answer_time.unwrap_or(UNKNOWN_REST);
        match run.phase {
            RunPhase::Loading { .. } => self.now.max(run.started + self.expected_load(slot)) + usual,
            RunPhase::Ready { .. } if run.in_flight() > 0 => {
                // An answer that is late by some time may be late by as much again.
                let took = self.now.since(run.last_sent);
                let late = slot.answer_time.map_or(usual, |usual| usual.abs_diff(took));
                self.now + late.max(usual / 4)
            }
            _ => self.now,
        }
    }

    // DECISION: what a model that comes before is about to load may be free sooner than an idle model with a
    // dear load is worth. It is looked at again when that load has begun.
    /// True if the model does better to wait for a model that comes before than to stop these runs.
    pub(crate) fn waits_rather(
        self,
        asking: ModelId,
        stopped: &[RunId],
        needs: Bytes,
        ahead: &[ModelId],
    ) -> bool {
        let waiters = self.swap_case(asking).waiters;
        let stays = stopped.iter().filter_map(|run| self.live(*run)).filter(|(.., run)| run.takes_requests());
        let cost: u64 = stays.map(|(_, slot, run)| self.eviction_cost(slot, run)).sum();
        ahead.iter().filter_map(|id| self.model(*id)).any(|slot| {
            let load = self.expected_load(slot);
            let free = load + slot.answer_time.unwrap_or(UNKNOWN_REST);
            let swap = milliseconds(free).saturating_mul(waiters).saturating_add(milliseconds(load));
            slot.room().is_some_and(|room| room.wait.needs >= needs) && swap < cost
        })
    }

    /// The longest time for which one of the runs that the model waits for may go on.
    pub(crate) fn turns_left(self, asking: ModelId, runs: &[RunId]) -> Duration {
        let (case, contention) = (self.swap_case(asking), self.contention());
        let left = runs.iter().filter_map(|run| {
            let (id, ..) = self.live(*run).filter(|(.., run)| !run.leaves() && run.draining.is_none())?;
            Some(contention.run_of(id)?.turn_end(case).since(self.now))
        });
        left.max().unwrap_or_default()
    }

    /// The arithmetic of a swap in a sentence, where a run is in use.
    pub(crate) fn swap_sum(self, contention: &Contention, asking: ModelId, id: ModelId) -> Option<Reason> {
        let slot = self.model(id)?;
        let run = slot.run.as_ref().filter(|run| run.is_ready() && run.in_flight() > 0)?;
        let (case, facts) = (self.swap_case(asking), contention.run_of(id)?);
        let (swap, turn) = (case.load.saturating_add(facts.reload), facts.turn_end(case));
        if swap.is_zero() {
            return None;
        }
        let patience = facts.patience;
        let begins = run.ready_at.unwrap_or(self.now) + patience;
        let others = || contention.waits.iter().filter(|wait| wait.model != id);
        let lost: Duration = others().map(|wait| self.now.since(begins.max(wait.since + patience))).sum();
        let ends = match turn.since(self.now).as_secs() {
            _ if turn <= self.now => "the turn of its clients is over".to_owned(),
            left => format!("the turn of its clients ends in {} s", left + 1),
        };
        let (clients, waits) =
            (counted(facts.clients, "client"), counted(others().count(), "waiting request"));
        let (swap, lost) = (swap.as_secs_f64(), lost.as_secs_f64());
        let text = format!(
            "{ends}: unloading and reloading it would cost its {clients} {swap:.1} s, and {waits} \
                for other models lost {lost:.1} s"
        );
        Some(Reason::new("turn", text))
    }

    /// Of the runs that stop for the model, the models of those that may drain now, and the time for the
    /// next.
    ///
    /// DECISION: nothing stands empty before the last of the runs is free. One that is busy is kept out of
    /// new requests when its answers would end with the last ones of the others, and an idle one stops after
    /// them. Once one of them has stopped, all busy ones drain, so that one answer more is the most that this
    /// costs.
    pub(crate) fn drains(
        self,
        contention: &Contention,
        asking: ModelId,
        victims: &[RunId],
    ) -> (Vec<ModelId>, Option<Moment>) {
        let case = self.swap_case(asking);
        let (mut parts, mut has_begun) = (Vec::new(), false);
        for run in victims {
            let Some((id, slot, live)) = self.live(*run) else {
                has_begun = true;
                continue;
            };
            let Some(facts) = contention.run_of(id) else { continue };
            let drains = self.is_draining_for_model(live);
            let usual = slot.answer_time.unwrap_or(UNKNOWN_REST);
            match self.prospect(case, facts, slot, live).standing {
                CardStanding::Leaving if !drains => has_begun |= live.is_stopping(),
                CardStanding::Idle => parts.push((id, CardStanding::Idle, self.now, usual)),
                CardStanding::Leaving | CardStanding::Busy => {
                    parts.push((id, CardStanding::Busy, facts.free, usual));
                }
                _ => {
                    let free = facts.turn_end(case).max(facts.free) + usual;
                    parts.push((id, CardStanding::Protected, free, usual));
                }
            }
        }
        let last = parts.iter().map(|(_, _, free, _)| *free).max().unwrap_or(self.now);
        let are_idle = parts.iter().all(|(_, standing, ..)| *standing == CardStanding::Idle);
        let goes = |(_, standing, free, usual): &&(ModelId, CardStanding, Moment, Duration)| match standing {
            CardStanding::Idle => are_idle,
            CardStanding::Busy => has_begun || *free == last || self.now + *usual >= last,
            _ => false,
        };
        let waits = parts.iter().filter(|part| part.1 == CardStanding::Busy && !goes(part));
        let next = waits.map(|(_, _, _, usual)| Moment::at(last.since_start().saturating_sub(*usual))).min();
        (parts.iter().filter(goes).map(|(id, ..)| *id).collect(), next)
    }
}
