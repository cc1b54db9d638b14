//! Sends a request to the host on which the fleet's records say that its model is loaded.
//!
//! For a model without a seat, the router chooses a host and claims one.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_base::Reason;

use super::copying::WantedCopy;
use super::doubts::CONFLICTS;
use super::replicas::Place;
use super::{Affinity, FleetEffect, FleetNode, NumberedSeats, Operation, SeatToken, TransactionOutcome};
use crate::claim::{Claim, Write};
use crate::keys::FleetKey;
use crate::place::{SeatDemand, SeatPurpose, place};
use crate::records::{HostRecord, Seat};
use crate::view::{StoreChange, Versioned};

/// Time for which a host that left the store is still asked: its lease may have been lost by mistake, and
/// then it comes back at once.
const GRACE: Duration = Duration::from_secs(2);
/// Time for which a host that has not shown that it is the one takes no part.
const DISTRUST: Duration = Duration::from_secs(60);
/// Pauses before the next claim: after a conflict, at most, which doubles with each further one up to 64
/// times; and while every host is full.
const CONFLICT_MS: u64 = 20;
const MOST_DOUBLINGS: u32 = 6;
const FULL: Duration = Duration::from_millis(250);
/// Reasons of hosts that end by themselves.
const WAITED_FOR: [&str; 2] = ["host_full", "copies_file"];

/// A request that looks for a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub(super) request: u64,
    pub(super) affinity: Affinity,
}

/// A claim that is under way for some requests.
#[derive(Debug)]
pub(super) struct PendingClaim {
    /// The requests, with the time at which each is refused.
    pub(super) waiting: Vec<(Demand, Duration)>,
    /// The time of the next attempt; `None` while an answer of the store is awaited.
    pub(super) again: Option<Duration>,
    /// The claim that the store was asked for.
    requested: Option<Claim>,
    only: Option<String>,
    /// Conflicts of its attempts, one after the other.
    conflicts: u32,
    /// For one more seat of a model whose hosts are busy; no request waits for it.
    more: bool,
    copy: WantedCopy,
    /// Why no host could take the model at the last attempt.
    refused: Option<Reason>,
}

impl PendingClaim {
    pub(super) fn new(now: Duration) -> Self {
        let (waiting, copy) = (Vec::new(), WantedCopy::default());
        let (requested, only, refused) = (None, None, None);
        Self { waiting, again: Some(now), requested, only, conflicts: 0, more: false, copy, refused }
    }

    /// For one more seat.
    pub(super) fn more(now: Duration) -> Self {
        Self { more: true, ..Self::new(now) }
    }

    /// True if the store was asked for the claim with this nonce last.
    fn requested_as(&self, nonce: &str) -> bool {
        self.requested.as_ref().is_some_and(|requested| requested.seat.nonce == nonce)
    }
}

impl FleetNode {
    /// Finds the host of a request.
    ///
    /// `except` is a host that has just failed the request.
    pub(super) fn route(
        &mut self,
        now: Duration,
        demand: Demand,
        model: &str,
        except: Option<&str>,
        effects: &mut Vec<FleetEffect>,
    ) {
        let request = demand.request;
        let holds = self.runs.contains_key(model);
        match self.replica(now, model, &demand.affinity, except) {
            // No seat exists: serve from the local run.
            None if holds => {
                effects.push(FleetEffect::Serve { request });
                self.seat_here(now, model);
            }
            Some(Place::Here { .. }) if holds => effects.push(FleetEffect::Serve { request }),
            Some(Place::There { host, address, token }) => {
                self.note_passed_on(request, model, &host);
                effects.push(FleetEffect::Forward { request, host, address, token })
            }
            _ if self.silent.is_some() => {
                effects.push(FleetEffect::Refuse { request, reason: self.silence(now) })
            }
            Some(Place::Here { token }) => self.confirm(request, model, token, effects),
            None => {
                let deadline = now + self.settings.wait;
                let claim = self.claims.entry(model.to_owned()).or_insert_with(|| PendingClaim::new(now));
                claim.waiting.push((demand, deadline));
                claim.more = false;
            }
        }
    }

    /// Address and token of a seat whose host lives, or left the store a moment ago.
    pub(super) fn address(
        &self,
        now: Duration,
        seat: &Versioned<Seat>,
    ) -> Option<(String, String, SeatToken)> {
        let body = &seat.record.body;
        let token = SeatToken { incarnation: body.incarnation.clone(), revision: seat.revision };
        let recently = || {
            let (since, host) = self.gone.get(&body.host)?;
            // While the store is silent it cannot tell that the host has come back.
            let is_recent = self.silent.is_some() || now < *since + GRACE;
            (is_recent && host.incarnation == body.incarnation).then_some(host)
        };
        let host = self.view.living_host(body).or_else(recently)?;
        Some((body.host.clone(), host.address.clone(), token))
    }

    /// Asks for a seat for a model that this host holds already.
    pub(super) fn seat_here(&mut self, now: Duration, model: &str) {
        let has_seat = self.runs.get(model).is_some_and(|run| run.token.is_some() || run.leaves);
        if has_seat || self.view.living_seats(model).next().is_some() {
            return;
        }
        let name = self.settings.name.clone();
        // This life may not be registered yet.
        if self.view.host(&name).is_none_or(|host| host.incarnation != self.incarnation) {
            return;
        }
        let claim = self.claims.entry(model.to_owned()).or_insert_with(|| PendingClaim::new(now));
        claim.only = Some(name);
    }

    /// The host of a request refused it, or is not reached: another one is chosen if its seat still stands.
    pub(super) fn host_failed(
        &mut self,
        now: Duration,
        request: u64,
        model: &str,
        host: &str,
        effects: &mut Vec<FleetEffect>,
    ) {
        self.gone.remove(host);
        self.passed_on.remove(&request);
        let hosts = || self.view.living_seats(model).map(|(_, seat)| &seat.record.body.host);
        let stands = hosts().any(|name| name == host);
        // Another host has a seat of the model: it is asked in the place of this one.
        let others = hosts().any(|name| name != host);
        if !stands || others {
            let demand = Demand { request, affinity: Affinity::default() };
            return self.route(now, demand, model, stands.then_some(host), effects);
        }
        // The host may be gone, or this daemon may be cut off, so the seat stands until the lease ends.
        let text = format!(
            "host '{host}', which has model '{model}', does not answer; another host may \
            load it once the registration of '{host}' expires"
        );
        let reason = Reason::new("host_unreachable", text).fact("host", host.to_owned());
        effects.push(FleetEffect::Refuse { request, reason });
    }

    /// Leaves a life of a host out of account: its seats are free for other hosts, and it gets none.
    ///
    /// DECISION: a host that is not reached keeps its seats until its lease ends, because this daemon may be
    /// the one that is cut off. Something else that answers in its place is no such case: it may renew a
    /// lease for ever.
    pub(super) fn distrust(&mut self, now: Duration, host: String) {
        if let Some(life) = self.view.host(&host).map(|record| record.incarnation.clone()) {
            self.view.distrusted.insert(host.clone(), life);
            self.distrusted.insert(host, now);
        }
    }

    /// Tries distrusted hosts anew after a time: certificates are renewed, and clocks are set.
    pub(super) fn trust_again(&mut self, now: Duration) {
        let Self { distrusted, view, .. } = self;
        distrusted.retain(|_, since| now < *since + DISTRUST);
        view.distrusted.retain(|host, _| distrusted.contains_key(host));
    }

    pub(super) fn forget(&mut self, request: u64) {
        self.passed_on.remove(&request);
        for claim in self.claims.values_mut() {
            claim.waiting.retain(|(waiting, _)| waiting.request != request);
        }
        for hops in self.confirming.values_mut() {
            hops.retain(|(waiting, _)| *waiting != request);
        }
    }

    /// Begins the claims whose time has come, and refuses the requests whose time has passed.
    pub(super) fn retry_claims(&mut self, now: Duration, effects: &mut Vec<FleetEffect>) {
        let due = |claim: &PendingClaim| claim.again.is_some_and(|at| at <= now);
        let due: Vec<String> =
            self.claims.iter().filter(|(_, claim)| due(claim)).map(|(model, _)| model.clone()).collect();
        for model in due {
            if let Some(claim) = self.claims.remove(&model) {
                self.attempt(now, model, claim, effects);
            }
        }
    }

    fn attempt(
        &mut self,
        now: Duration,
        model: String,
        mut claim: PendingClaim,
        effects: &mut Vec<FleetEffect>,
    ) {
        let present = u32::try_from(self.view.living_seats(&model).count()).unwrap_or(u32::MAX);
        let is_done = if claim.more { present >= self.most_replicas(&model) } else { present > 0 };
        if is_done || (claim.more && present == 0) {
            let waiting = claim.waiting.into_iter();
            return waiting.for_each(|(demand, _)| self.route(now, demand, &model, None, effects));
        }
        let (late, waiting): (Vec<_>, Vec<_>) = claim.waiting.into_iter().partition(|(_, end)| *end <= now);
        claim.waiting = waiting;
        if !late.is_empty() {
            let text = || format!("model '{model}' was not assigned to a host in time");
            let reason = claim.refused.clone().unwrap_or_else(|| Reason::new("no_seat_in_time", text()));
            refuse(late, &reason, effects);
            if claim.waiting.is_empty() && claim.only.is_none() {
                return;
            }
        }
        let random = self.draw();
        let only = claim.only.clone();
        let only = only.as_deref();
        let occupied = only.and_then(|_| self.occupied_unseated(&model)).unwrap_or_default();
        let purpose = if claim.more { SeatPurpose::Further } else { SeatPurpose::Wanted };
        let draw = self.draw();
        let nonce = format!("{}-{draw:x}", self.incarnation);
        // A further seat is for another host.
        let near = (!claim.waiting.is_empty() && !claim.more).then_some(&*self.settings.name);
        let demand = SeatDemand { model: &model, only, near, purpose, occupied, random };
        let planned = place(&self.view, &demand).and_then(|plan| {
            let newer = || {
                Reason::new(
                    "newer_record",
                    "a later version of plimsoll assigned the model, and this \
                    host cannot read its record; update plimsoll here",
                )
            };
            Claim::new(&self.view, &model, plan, nonce).ok_or_else(newer)
        });
        match planned {
            Ok(mut planned) => {
                planned.transaction.writes.extend(self.with_less_unseated(occupied));
                let (transaction, nonce) = (planned.transaction.clone(), planned.seat.nonce.clone());
                (claim.again, claim.requested, claim.refused) = (None, Some(planned), None);
                self.claims.insert(model.clone(), claim);
                self.transact(Operation::Claim { model, nonce }, transaction, effects);
            }
            Err(reason) => {
                let reason = self.copy_instead(now, &demand, &mut claim.copy, reason, effects);
                // A full host may have room soon, and a copy its end; a request waits for that, and nothing
                // else does.
                let waits = reason.because.iter().any(|host| WAITED_FOR.contains(&host.code));
                let late = |request: &(Demand, Duration)| !waits || request.1 <= now;
                let (late, left) = claim.waiting.into_iter().partition(late);
                (claim.waiting, claim.again) = (left, Some(now + FULL));
                refuse(late, &reason, effects);
                claim.refused = Some(reason);
                if !claim.waiting.is_empty() {
                    self.claims.insert(model, claim);
                }
            }
        }
    }

    pub(super) fn claimed(
        &mut self,
        now: Duration,
        model: String,
        nonce: String,
        outcome: TransactionOutcome,
        effects: &mut Vec<FleetEffect>,
    ) {
        let drawn = self.draw();
        // The claim of an earlier request is no answer to this one; the watch shows its outcome.
        let Some(claim) = self.claims.get_mut(&model).filter(|claim| claim.requested_as(&nonce)) else {
            return;
        };
        match outcome {
            TransactionOutcome::Applied(revision) => self.seated(now, &model, revision, effects),
            TransactionOutcome::Unknown => {
                let operation = self.begin(Operation::Resolve { model: model.clone(), nonce });
                effects.push(FleetEffect::ReadSeat { operation, model });
            }
            TransactionOutcome::Conflict => {
                let most = CONFLICT_MS << claim.conflicts.min(MOST_DOUBLINGS);
                claim.again = Some(now + Duration::from_millis(1 + drawn % most));
                claim.conflicts = claim.conflicts.saturating_add(1);
                if claim.conflicts >= CONFLICTS {
                    self.doubt_news(now, effects);
                }
            }
            TransactionOutcome::Full => {
                let waiting = std::mem::take(&mut claim.waiting);
                self.claims.remove(&model);
                let text = "the fleet's store is full, so no model is loaded until etcd is compacted and \
                    defragmented; loaded models are served";
                refuse(waiting, &Reason::new("store_full", text), effects);
            }
        }
    }

    /// Enters a claim of this daemon before the watch delivers it, and routes what waited for it.
    fn seated(&mut self, now: Duration, model: &str, revision: u64, effects: &mut Vec<FleetEffect>) {
        let Some(claim) = self.claims.remove(model) else { return };
        for Write { key, value, .. } in
            claim.requested.into_iter().flat_map(|requested| requested.transaction.writes)
        {
            self.view.enter(&StoreChange { key, revision, value });
        }
        for (demand, _) in claim.waiting {
            self.route(now, demand, model, None, effects);
        }
    }

    /// The nonce shows whether a claim without an answer was applied.
    pub(super) fn resolved(
        &mut self,
        now: Duration,
        model: String,
        nonce: &str,
        found: Option<NumberedSeats>,
        effects: &mut Vec<FleetEffect>,
    ) {
        let Some(claim) = self.claims.get_mut(&model).filter(|claim| claim.requested_as(nonce)) else {
            return;
        };
        let is_own = |(_, seat): &&(u32, Versioned<Seat>)| seat.record.body.nonce == nonce;
        let own = found.as_ref().and_then(|found| found.iter().find(is_own));
        match own.map(|(_, seat)| seat.revision) {
            Some(revision) => self.seated(now, &model, revision, effects),
            // Should it be applied later, the next claim's compare of the seat fails.
            None => {
                let pause = if found.is_some() { Duration::from_millis(CONFLICT_MS) } else { FULL };
                claim.again = Some(now + pause);
            }
        }
    }

    /// The hosts that `changes` may delete, with their records.
    pub(super) fn hosts_of(&self, changes: &[StoreChange]) -> Vec<(String, Versioned<HostRecord>)> {
        let deleted = changes.iter().filter(|change| change.value.is_none());
        let names = deleted.filter_map(|change| match &change.key {
            FleetKey::Host(name) => Some(name),
            _ => None,
        });
        names.filter_map(|name| Some((name.clone(), self.view.hosts.get(name)?.clone()))).collect()
    }

    /// Notes since when hosts are gone.
    pub(super) fn note_gone(&mut self, now: Duration, before: &BTreeMap<String, Versioned<HostRecord>>) {
        for (name, host) in before {
            if !self.view.hosts.contains_key(name) {
                self.gone.insert(name.clone(), (now, host.record.body.clone()));
            }
        }
        let hosts = &self.view.hosts;
        self.gone.retain(|name, _| !hosts.contains_key(name));
    }
}

fn refuse(requests: Vec<(Demand, Duration)>, reason: &Reason, effects: &mut Vec<FleetEffect>) {
    let refuse = |(demand, _): (Demand, Duration)| FleetEffect::Refuse {
        request: demand.request,
        reason: reason.clone(),
    };
    effects.extend(requests.into_iter().map(refuse));
}
