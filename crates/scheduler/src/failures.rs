//! Records a model's failed loads: the wait before the next one (back-off), and the memory that was missing.
//!
//! Each failure doubles the wait, from 1 s to 60 s. The record is cleared once an engine has been ready for a
//! minute.

use std::time::Duration;

use plimsoll_base::{Bytes, Placement, Reason, Share};

use super::slope::GrowthTracker;
use super::time::Moment;
use crate::place::LearnedNeed;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const HEALTHY: Duration = Duration::from_secs(60);
/// Requests wait through a back-off of this length at most.
const WAITED_FOR: Duration = Duration::from_secs(8);
/// A model that could not be loaded leaves others alone for so many times the cost of its try, and for this
/// time at most.
const COST_TIMES: u32 = 10;
const LONGEST_SPARED: Duration = Duration::from_secs(3600);
/// Deaths from which on the learned part of a claim is limited.
const LIMITED_FROM: u32 = 2;
/// That limit, as a share of the plan.
const LIMIT: (u64, u64) = (25, 100);

#[derive(Clone, Debug, Default)]
pub(crate) struct FailureRecord {
    strikes: u32,
    kept_until: Moment,
    /// The whole time for which loads are held back.
    wait: Duration,
    pub(crate) last_failure: Option<Reason>,
    /// The last thing that happened was a failure.
    pub(crate) failed: bool,
    /// The last failure was that of a run that had been ready.
    pub(crate) died_serving: bool,
    /// The last failure is repeated by every load until the operator changes something.
    lasts: bool,
    /// Failed loads that cost others something, since the last success.
    costly: u32,
    /// Until then the model takes only free memory.
    spares_until: Moment,
    /// Memory added to the demand on every card after runs that died out of memory.
    shortfall: Bytes,
    deaths: u32,
    /// Added to the demand on every card because a run was measured to take more than planned.
    excess: Bytes,
    /// Total measured memory of a run whose need was unknown.
    pub(crate) measured: Option<Bytes>,
    /// Memory that a token of depth was observed to add.
    pub(crate) growth: GrowthTracker,
    /// This load was retried after running out of memory.
    pub(crate) retried: bool,
}

impl FailureRecord {
    /// Takes a load that failed; where it `lasts`, every load fails until the operator changes something.
    pub(crate) fn load_failed(&mut self, now: Moment, reason: Reason, lasts: bool) {
        // The first crash of an engine that has served requests causes no wait. The lacking memory is added
        // to the next claim.
        (self.retried, self.died_serving) = (false, false);
        self.strike(now, reason, self.strikes + 1);
        self.lasts = lasts;
    }

    /// Takes the end of a run that had been ready since then, and had answered requests or none.
    pub(crate) fn run_failed(&mut self, now: Moment, ready_at: Moment, answered: bool, reason: Reason) {
        if now.since(ready_at) >= HEALTHY {
            // A minute of service shows that the engine works here; what follows is a new fault.
            self.strikes = 0;
        }
        if answered {
            // A load that leads to answers is worth its time, however often.
            self.strikes = self.strikes.min(1);
        }
        self.died_serving = true;
        self.strike(now, reason, self.strikes);
    }

    fn strike(&mut self, now: Moment, reason: Reason, waits: u32) {
        let wait = match waits.checked_sub(1) {
            // 2^6 s is above the longest wait already; a larger shift would overflow in a long crash loop.
            Some(doublings) => FIRST_WAIT.saturating_mul(1 << doublings.min(6)).min(LONGEST_WAIT),
            None => Duration::ZERO,
        };
        self.strikes = self.strikes.saturating_add(1);
        (self.kept_until, self.wait) = (now + wait, wait);
        self.note(reason);
    }

    /// Records why the model does not run, without holding its next load back.
    pub(crate) fn note(&mut self, reason: Reason) {
        self.last_failure = Some(reason);
        (self.failed, self.lasts) = (true, false);
    }

    /// Records what is wrong with the model's files or flags, as a check before the load found it.
    pub(crate) fn found_fault(&mut self, reason: Reason) {
        self.note(reason);
        (self.died_serving, self.lasts) = (false, true);
    }

    /// True if no wait makes the next load succeed.
    pub(crate) fn lasts(&self) -> bool {
        self.failed && self.lasts
    }

    /// Records that there was no room for the model, which is no failure of the model itself.
    pub(crate) fn lacked_room(&mut self, reason: Reason) {
        self.last_failure = Some(reason);
        self.failed = false;
    }

    // DECISION: a model that could not be loaded may never load, and each try costs the models that leave for
    // it their answers. So it leaves others alone for ten times what its last try cost, and for twice as long
    // after each further one. They keep nine tenths of their time. Free memory costs them nothing.
    /// Takes what a failed load cost: its own time, and that of the loads of those that left for it.
    pub(crate) fn load_cost(&mut self, now: Moment, cost: Duration) {
        let times = COST_TIMES << self.costly.min(6);
        self.costly = self.costly.saturating_add(1);
        self.spares_until = now + cost.saturating_mul(times).min(LONGEST_SPARED);
    }

    /// Remaining time for which the model takes only free memory.
    pub(crate) fn spares(&self, now: Moment) -> Option<Duration> {
        Some(self.spares_until.since(now)).filter(|wait| self.failed && !wait.is_zero())
    }

    /// Takes a load that succeeded.
    pub(crate) fn loaded(&mut self) {
        (self.costly, self.spares_until) = (0, Moment::START);
        self.failed = false;
        self.retried = false;
    }

    /// The last failure, unless the model ran since.
    pub(crate) fn standing_failure(&self) -> Option<Reason> {
        self.last_failure.clone().filter(|_| self.failed)
    }

    pub(crate) fn forgive(&mut self) {
        (self.kept_until, self.spares_until) = (Moment::START, Moment::START);
    }

    /// Remaining time for which loads are held back; None if they are not.
    pub(crate) fn deferred(&self, now: Moment) -> Option<Duration> {
        Some(self.kept_until.since(now)).filter(|wait| !wait.is_zero())
    }

    /// The time for which loads are held back, if requests are refused meanwhile. For a short time they wait:
    /// a run that had been ready can be expected to be ready again.
    pub(crate) fn refuses(&self, now: Moment) -> Option<Duration> {
        self.deferred(now).filter(|_| !self.died_serving || self.wait > WAITED_FOR)
    }

    /// Memory to add to the demand on every card.
    pub(crate) fn learned(&self) -> LearnedNeed {
        LearnedNeed { measured: self.excess, lacked: self.shortfall }
    }

    /// Records a run that died out of memory; `missing` is added to the next demand.
    pub(crate) fn ran_out(&mut self, placement: &Placement, missing: Bytes) {
        let largest = placement.shares.iter().map(|share| share.bytes).max();
        let largest = largest.unwrap_or_default();
        // The placement includes what was learned before, which must not raise its own limit.
        let planned = largest.saturating_sub(self.learned().total());
        self.shortfall += missing;
        self.deaths = self.deaths.saturating_add(1);
        if self.deaths >= LIMITED_FROM {
            // A model that keeps dying would otherwise claim more each time, until no other fits beside it.
            self.shortfall = self.shortfall.min(planned.scaled(LIMIT.0, LIMIT.1));
        }
    }

    /// Takes a run that was measured to use this much more than its claim.
    pub(crate) fn measured_excess(&mut self, excess: Bytes) {
        self.excess += excess;
    }

    /// Forgets the need that was inferred from failures; returns true if there was any. Measurements stay.
    pub(crate) fn forget_shortfall(&mut self) -> bool {
        self.deaths = 0;
        !std::mem::take(&mut self.shortfall).is_zero()
    }

    /// Records a run that ended on request. After a long healthy run only its measured excess over the plan
    /// is kept.
    pub(crate) fn run_ended(&mut self, lived: Duration, placement: &Placement, measured: &[Share]) {
        self.failed = false;
        if lived < HEALTHY || self.shortfall.is_zero() {
            return;
        }
        let learned = self.learned().total();
        let over = measured.iter().map(|share| {
            let planned = placement.on(&share.card).saturating_sub(learned);
            share.bytes.saturating_sub(planned)
        });
        // Without a measurement the plan is a better guess of the need than a death that lies back by a
        // healthy run.
        self.excess = self.excess.max(over.max().unwrap_or_default());
        (self.shortfall, self.deaths) = (Bytes::ZERO, 0);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::{CardId, Share};

    use crate::effect::RequestRefusalKind;
    use crate::refusal;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    fn reason() -> Reason {
        Reason::new("crashed", "it crashed")
    }

    #[test]
    fn load_failures_are_held_back_twice_as_long_each_time_up_to_a_minute() {
        let mut record = FailureRecord::default();
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                record.load_failed(at(0), reason(), false);
                record.deferred(at(0)).unwrap().as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn the_first_crash_of_an_engine_that_had_served_is_forgiven_and_a_healthy_minute_clears_the_slate() {
        let mut record = FailureRecord::default();
        record.run_failed(at(5), at(0), false, reason());
        assert_eq!(record.deferred(at(5)), None);
        record.run_failed(at(7), at(6), false, reason());
        assert_eq!(record.deferred(at(7)), Some(FIRST_WAIT));
        record.run_failed(at(100), at(40), false, reason());
        assert_eq!(record.deferred(at(100)), None);
    }

    fn placed(bytes: Bytes) -> Placement {
        Placement { shares: vec![Share::new(CardId::new("a"), bytes)], alone: false }
    }

    #[test]
    fn from_the_second_death_on_a_claim_is_at_most_a_quarter_above_the_plan() {
        let mut record = FailureRecord::default();
        for _ in 0..5 {
            let claim = Bytes::gib(8) + record.learned().total();
            record.ran_out(&placed(claim), Bytes::gib(3));
        }
        assert_eq!(record.learned().total(), Bytes::gib(2));
    }

    #[test]
    fn a_healthy_run_leaves_only_what_it_was_measured_to_take_beyond_the_plan() {
        for (measured, kept) in [(None, Bytes::ZERO), (Some(9), Bytes::gib(1)), (Some(7), Bytes::ZERO)] {
            let mut record = FailureRecord::default();
            record.ran_out(&placed(Bytes::gib(8)), Bytes::gib(2));
            let measured: Vec<Share> =
                measured.map(|gib| Share::new(CardId::new("a"), Bytes::gib(gib))).into_iter().collect();
            let minute = Duration::from_secs(60);
            record.run_ended(minute - Duration::from_secs(1), &placed(Bytes::gib(10)), &measured);
            assert_eq!(record.learned().total(), Bytes::gib(2), "it did not live for long enough");
            record.run_ended(minute, &placed(Bytes::gib(10)), &measured);
            assert_eq!(record.learned().total(), kept);
        }
    }

    #[test]
    fn a_run_that_died_in_service_is_not_reported_as_a_failed_load() {
        let mut record = FailureRecord::default();
        let refused = |record: &FailureRecord| {
            let refusal = refusal::load_failed("b", record, Some(Duration::from_secs(1)));
            (refusal.kind, refusal.reason.code)
        };
        record.load_failed(at(0), reason(), false);
        assert_eq!(refused(&record), (RequestRefusalKind::LoadFailed, "load_failed"));
        record.run_failed(at(90), at(1), false, reason());
        assert_eq!(refused(&record), (RequestRefusalKind::EngineDied, "engine_died"));
        record.load_failed(at(95), reason(), false);
        assert_eq!(refused(&record).0, RequestRefusalKind::LoadFailed);
    }

    #[test]
    fn a_lasting_failure_is_refused_without_a_retry_time() {
        let refused = |record: &FailureRecord| {
            let refusal = refusal::load_failed("b", record, record.deferred(at(0)));
            (refusal.kind, refusal.retry_after)
        };
        let second = Some(Duration::from_secs(1));
        let mut record = FailureRecord::default();
        record.load_failed(at(0), reason(), true);
        assert_eq!(refused(&record), (RequestRefusalKind::Unstartable, None));
        record.forgive();
        record.load_failed(at(0), reason(), false);
        assert!(matches!(refused(&record), (RequestRefusalKind::LoadFailed, Some(_))));
        let mut record = FailureRecord::default();
        record.load_failed(at(0), reason(), false);
        assert_eq!(refused(&record), (RequestRefusalKind::LoadFailed, second));
        record.found_fault(reason());
        assert_eq!(refused(&record), (RequestRefusalKind::Unstartable, None));
        record.loaded();
        assert_eq!(refused(&record).0, RequestRefusalKind::LoadFailed, "it is mended");
    }

    #[test]
    fn a_fault_of_the_files_is_not_reported_as_the_death_of_an_engine() {
        let mut record = FailureRecord::default();
        record.run_failed(at(90), at(1), false, reason());
        record.found_fault(Reason::new("unstartable", "the file is missing"));
        let refusal = refusal::load_failed("b", &record, None);
        assert_eq!((refusal.kind, refusal.reason.code), (RequestRefusalKind::Unstartable, "load_failed"));
    }
}
