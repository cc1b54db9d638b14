//! Decides whether this host may load or serve a model, from the fleet's record that assigns it to this host.
//!
//! Before a host loads or serves a model, it checks the request's token (the revision of the seat's claim).
//! It also gives up seats, for instance when no request comes for one.

use std::time::Duration;

use plimsoll_base::{Bytes, Reason};

use super::{FleetEffect, FleetNode, NumberedSeats, Operation, SeatToken, TransactionOutcome};
use crate::claim::{ClaimGuard, Compare, Transaction, Write};
use crate::keys::FleetKey;
use crate::records::{Drain, RunPhase, Seat, SeatCause};
use crate::view::Versioned;

/// A seat for which no request comes for so long is given up: the router that claimed it has ended.
pub(super) const UNCLAIMED: Duration = Duration::from_secs(10);
/// Pause before a seat is deleted once more, if the store did not answer or has it again.
const DELETE_AGAIN: Duration = Duration::from_secs(1);

/// Seat of this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OccupiedSeat {
    pub(super) model: String,
    pub(super) number: u32,
    pub(super) token: u64,
}

impl OccupiedSeat {
    fn key(&self) -> FleetKey {
        FleetKey::Seat { model: self.model.clone(), number: self.number }
    }
}

/// A model that this host holds.
#[derive(Clone, Debug)]
pub(super) struct LocalRun {
    /// The revision of its seat; none if it has none.
    pub(super) token: Option<u64>,
    /// The number of the seat, or of the last one.
    pub(super) number: u32,
    pub(super) need: Bytes,
    pub(super) phase: RunPhase,
    pub(super) idle: bool,
    /// Its memory is promised to another model, so it does not count as held without a seat.
    pub(super) leaves: bool,
}

impl FleetNode {
    pub(super) fn is_mine(&self, seat: &Seat) -> bool {
        seat.host == self.settings.name && seat.incarnation == self.incarnation
    }

    /// Checks the token of a request that another daemon passed on.
    pub(super) fn hop(
        &mut self,
        request: u64,
        model: &str,
        token: &SeatToken,
        effects: &mut Vec<FleetEffect>,
    ) {
        if token.incarnation != self.incarnation {
            return effects
                .push(stale(request, "the request was forwarded before this host registered anew"));
        }
        match self.runs.get(model).map(|run| run.token) {
            Some(Some(occupied)) if occupied == token.revision => {
                effects.push(FleetEffect::Serve { request })
            }
            Some(Some(occupied)) if occupied > token.revision => {
                effects.push(stale(
                    request,
                    "the model was assigned to this host again after the request was forwarded",
                ));
            }
            // Loaded models are served while the store is silent.
            Some(None) if self.silent.is_some() => effects.push(FleetEffect::Serve { request }),
            _ => self.confirm(request, model, token.revision, effects),
        }
    }

    /// Asks a quorum of the store for the seat, before a model is loaded under it.
    pub(super) fn confirm(&mut self, request: u64, model: &str, token: u64, effects: &mut Vec<FleetEffect>) {
        if self.burnt.get(model).is_some_and(|burnt| token <= *burnt) {
            return effects.push(stale(
                request,
                "this host no longer serves the model, because it gave up its assignment",
            ));
        }
        let waiting = self.confirming.entry(model.to_owned()).or_default();
        waiting.push((request, token));
        if waiting.len() == 1 {
            let operation = self.begin(Operation::Confirm { model: model.to_owned() });
            effects.push(FleetEffect::ReadSeat { operation, model: model.to_owned() });
        }
    }

    pub(super) fn confirmed(
        &mut self,
        now: Duration,
        model: &str,
        found: Option<NumberedSeats>,
        effects: &mut Vec<FleetEffect>,
    ) {
        let waiting = self.confirming.remove(model).unwrap_or_default();
        let accepted = match found {
            None => Err(self.silence(now)),
            Some(found) => self.accept(now, model, found, effects),
        };
        for (request, token) in waiting {
            effects.push(match &accepted {
                Ok(occupied) if *occupied == token => FleetEffect::Serve { request },
                Ok(_) => stale(request, "the model was assigned anew after the request was forwarded"),
                Err(reason) => FleetEffect::Refuse { request, reason: reason.clone() },
            });
        }
    }

    /// Takes a model under the seat that the store has; the result is its token.
    fn accept(
        &mut self,
        now: Duration,
        model: &str,
        found: NumberedSeats,
        effects: &mut Vec<FleetEffect>,
    ) -> Result<u64, Reason> {
        let mine = found.into_iter().find(|(_, seat)| self.is_mine(&seat.record.body));
        let missing = || Reason::new("stale_seat", "the model is not assigned to this host");
        let (number, seat) = mine.ok_or_else(missing)?;
        let token = seat.revision;
        let occupied_seat = OccupiedSeat { model: model.to_owned(), number, token };
        // Looked at again: it may have been given up while the store was asked.
        if self.burnt.get(model).is_some_and(|burnt| token <= *burnt) {
            return Err(Reason::new(
                "stale_seat",
                "this host no longer serves the model, because it gave up its assignment",
            ));
        }
        let need = seat.record.body.need;
        let occupied: Bytes = self
            .runs
            .iter()
            .filter(|(other, run)| *other != model && !run.leaves)
            .map(|(_, run)| run.need)
            .sum();
        if occupied + need > self.settings.capacity {
            self.give_up(now, occupied_seat, effects);
            let reason =
                Reason::new("host_full", "the other models on this host leave too little memory for it");
            return Err(reason.fact("need", need).fact("held", occupied));
        }
        self.unclaimed.remove(&occupied_seat);
        let phase = RunPhase::Loading;
        let run = LocalRun { token: Some(token), number, need, phase, idle: false, leaves: false };
        let run = self.runs.entry(model.to_owned()).or_insert(run);
        (run.token, run.number, run.need, run.leaves) = (Some(token), number, need, false);
        self.registration.is_stale = true;
        Ok(token)
    }

    /// True for a seat for which no request has come for too long.
    pub(super) fn is_unclaimed(&self, now: Duration, seat: &OccupiedSeat) -> bool {
        self.unclaimed.get(seat).is_some_and(|since| now >= *since + UNCLAIMED)
    }

    /// Deletes a seat. The token is burnt at once: the deletion may be applied long after the store was
    /// asked.
    pub(super) fn give_up(&mut self, now: Duration, seat: OccupiedSeat, effects: &mut Vec<FleetEffect>) {
        let burnt = self.burnt.entry(seat.model.clone()).or_default();
        *burnt = seat.token.max(*burnt);
        self.unclaimed.remove(&seat);
        self.giving_up.insert(seat.clone(), now + DELETE_AGAIN);
        let compares = vec![Compare { guard: ClaimGuard::Seat, key: seat.key(), revision: seat.token }];
        let transaction = Transaction { compares, writes: vec![Write::delete(seat.key())] };
        self.transact(Operation::GiveUp { seat }, transaction, effects);
    }

    pub(super) fn gave_up(&mut self, now: Duration, seat: &OccupiedSeat, outcome: TransactionOutcome) {
        let Some(again) = self.giving_up.get_mut(seat) else { return };
        *again = now + DELETE_AGAIN;
        if matches!(outcome, TransactionOutcome::Applied(_) | TransactionOutcome::Conflict) {
            self.giving_up.remove(seat);
        }
    }

    pub(super) fn run_changed(
        &mut self,
        now: Duration,
        model: &str,
        run: Option<(RunPhase, Bytes)>,
        idle: bool,
        effects: &mut Vec<FleetEffect>,
    ) {
        self.registration.state_changed();
        match run {
            None => {
                // First the memory, then the seat.
                let seat = self.runs.remove(model).and_then(|run| {
                    Some(OccupiedSeat { model: model.to_owned(), number: run.number, token: run.token? })
                });
                seat.into_iter().for_each(|seat| self.give_up(now, seat, effects));
                self.registration.is_stale = true;
            }
            Some((phase, need)) => {
                let fresh = LocalRun { token: None, number: 0, need, phase, idle, leaves: false };
                let run = self.runs.entry(model.to_owned()).or_insert(fresh);
                (run.phase, run.idle) = (phase, idle);
                if run.token.is_none() {
                    run.need = need;
                    self.registration.is_stale = true;
                    self.seat_here(now, model);
                }
            }
        }
    }

    /// Seats that this host claimed for models that it held already.
    fn adoptable(&self) -> Vec<(OccupiedSeat, Bytes)> {
        let seats = self.view.numbered_seats_on(&self.settings.name, &self.incarnation);
        let is_occupied =
            |model: &str| self.runs.get(model).is_some_and(|run| run.token.is_none() && !run.leaves);
        let seats =
            seats.filter(|(model, _, seat)| is_occupied(model) && self.is_unburnt(model, seat.revision));
        let occupied = |model: &str, number, token| OccupiedSeat { model: model.to_owned(), number, token };
        seats
            .map(|(model, number, seat)| (occupied(model, number, seat.revision), seat.record.body.need))
            .collect()
    }

    pub(super) fn is_unburnt(&self, model: &str, token: u64) -> bool {
        self.burnt.get(model).is_none_or(|burnt| token > *burnt)
    }

    pub(super) fn adopt(&mut self, seat: &OccupiedSeat, need: Bytes) {
        if let Some(run) = self.runs.get_mut(&seat.model) {
            (run.token, run.number, run.need) = (Some(seat.token), seat.number, need);
            self.registration.is_stale = true;
        }
    }

    /// Compares what is held with the seats that the store has. News of another host about them is confirmed
    /// first.
    pub(super) fn check_runs(&mut self, now: Duration, effects: &mut Vec<FleetEffect>) {
        let is_reported = self.trust.is_reported();
        for (seat, need) in self.adoptable() {
            if is_reported {
                self.confirm_reported(now, &seat.model, effects)
            } else {
                self.adopt(&seat, need)
            }
        }
        let mut lost = Vec::new();
        for (model, run) in &self.runs {
            let seat = self.view.seats.get(&(model.clone(), run.number));
            let stands = |token: u64| seat.is_some_and(|seat| seat.revision == token);
            if let Some(token) = run.token.filter(|token| self.view.revision >= *token && !stands(*token)) {
                let is_moved = seat.is_some_and(|seat| seat.record.body.cause == SeatCause::Moved);
                lost.push((model.clone(), token, is_moved || self.is_evicted(token)));
            }
        }
        for (model, token, leaves) in lost {
            if is_reported {
                self.confirm_reported(now, &model, effects)
            } else {
                self.lose(&model, token, leaves, effects)
            }
        }
    }

    /// Holds a model without a seat from now on, until it leaves.
    pub(super) fn lose(&mut self, model: &str, token: u64, leaves: bool, effects: &mut Vec<FleetEffect>) {
        self.burnt.insert(model.to_owned(), token);
        if let Some(run) = self.runs.get_mut(model) {
            (run.token, run.leaves) = (None, leaves);
        }
        self.registration.is_stale = true;
        effects.push(FleetEffect::Release { model: model.to_owned() });
    }

    pub(super) fn is_evicted(&self, token: u64) -> bool {
        let (name, incarnation) = (&self.settings.name, &self.incarnation);
        self.view.seats_on(name, incarnation).any(|(_, _, seat)| seat.evicts.contains(&token))
    }

    /// Gives up seats of this host for which nothing came, and deletes again where the store did not answer.
    pub(super) fn sweep(&mut self, now: Duration, effects: &mut Vec<FleetEffect>) {
        let seats = self.view.numbered_seats_on(&self.settings.name, &self.incarnation);
        let seats = seats.map(|(model, number, seat)| (model, number, seat.revision));
        let seats = seats.filter(|(model, ..)| !self.runs.contains_key(*model));
        let seats =
            seats.map(|(model, number, token)| OccupiedSeat { model: model.to_owned(), number, token });
        let empty: Vec<OccupiedSeat> = seats.filter(|seat| !self.giving_up.contains_key(seat)).collect();
        self.unclaimed.retain(|seat, _| empty.contains(seat));
        for seat in empty {
            let since = *self.unclaimed.entry(seat.clone()).or_insert(now);
            // One that was given up may be back, with a backup of the store: no request can be served by its
            // burnt token.
            let wait = if self.is_unburnt(&seat.model, seat.token) { UNCLAIMED } else { DELETE_AGAIN };
            if now >= since + wait {
                if self.trust.is_reported() {
                    self.confirm_reported(now, &seat.model, effects)
                } else {
                    self.give_up(now, seat, effects)
                }
            }
        }
        // Idle models of a host that is drained leave; the next request seats them elsewhere.
        let leaves = |drain: &Versioned<Drain>| drain.record.body.leave;
        if self.view.drains.get(&self.settings.name).is_some_and(leaves) {
            let idle = self.runs.iter().filter(|(_, run)| run.idle && run.phase == RunPhase::Ready);
            effects.extend(idle.map(|(model, _)| FleetEffect::Release { model: model.clone() }));
        }
        // So do idle models without a seat that sit on another host now.
        let is_elsewhere =
            |model: &str| self.view.living_seats(model).any(|(_, seat)| !self.is_mine(&seat.record.body));
        let surplus = self.runs.iter().filter(|(model, run)| {
            run.token.is_none() && run.idle && run.phase == RunPhase::Ready && is_elsewhere(model)
        });
        effects.extend(surplus.map(|(model, _)| FleetEffect::Release { model: model.clone() }));
        let again = self.giving_up.iter().filter(|(_, at)| **at <= now);
        let again: Vec<OccupiedSeat> = again.map(|(seat, _)| seat.clone()).collect();
        again.into_iter().for_each(|seat| self.give_up(now, seat, effects));
    }
}

fn stale(request: u64, text: &str) -> FleetEffect {
    FleetEffect::Refuse { request, reason: Reason::new("stale_seat", text) }
}
