//! After a failure: how long loads are held back, and what is learned about the need.
//!
//! The first crash of an engine that had served is forgiven: the next request starts it again at once. Every
//! other failure doubles the wait, 1 s to 60 s, during which requests are told the cause instead of causing the
//! same crash again. An engine that has been ready for a minute starts with a clean slate.

use std::time::Duration;

use plimsoll_base::{Bytes, Placement, Reason};

use super::growth::Slope;
use super::moment::Moment;
use crate::place::allowance;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const HEALTHY: Duration = Duration::from_secs(60);

/// A model's record of failures.
#[derive(Debug, Default)]
pub(super) struct Record {
    strikes: u32,
    held_until: Moment,
    pub(super) last_failure: Option<Reason>,
    /// The last thing that happened was a failure.
    pub(super) failed: bool,
    /// Added to the demand on every card.
    pub(super) learned: Bytes,
    /// Total that was measured of a run whose need was not known.
    pub(super) measured: Option<Bytes>,
    /// What a token of depth was seen to add.
    pub(super) slope: Slope,
    /// This load has been tried again after running out of memory.
    pub(super) retried: bool,
}

impl Record {
    pub(super) fn load_failed(&mut self, now: Moment, reason: Reason) {
        self.strike(now, reason, self.strikes + 1);
    }

    pub(super) fn run_failed(&mut self, now: Moment, ready_at: Moment, reason: Reason) {
        if now.since(ready_at) >= HEALTHY {
            self.strikes = 0;
        }
        self.strike(now, reason, self.strikes);
    }

    fn strike(&mut self, now: Moment, reason: Reason, waits: u32) {
        let wait = match waits.checked_sub(1) {
            Some(doublings) => FIRST_WAIT.saturating_mul(1 << doublings.min(6)).min(LONGEST_WAIT),
            None => Duration::ZERO,
        };
        self.strikes = self.strikes.saturating_add(1);
        self.held_until = now + wait;
        self.note(reason);
    }

    /// Notes why nothing runs, without holding anything back.
    pub(super) fn note(&mut self, reason: Reason) {
        self.last_failure = Some(reason);
        self.failed = true;
    }

    /// The last failure, unless something has gone well since.
    pub(super) fn standing_failure(&self) -> Option<Reason> {
        self.last_failure.clone().filter(|_| self.failed)
    }

    pub(super) fn forgive(&mut self) {
        self.held_until = Moment::START;
    }

    /// How much longer loads are held back; None if they are not.
    pub(super) fn held_back(&self, now: Moment) -> Option<Duration> {
        Some(self.held_until.since(now)).filter(|wait| !wait.is_zero())
    }

    /// Memory ran out: the next demand is larger by the shortfall, or by the [`allowance`] for its largest share.
    pub(super) fn learn_shortfall(&mut self, placement: &Placement, shortfall: Option<Bytes>) {
        let largest = placement
            .shares
            .iter()
            .map(|share| share.bytes)
            .max()
            .unwrap_or_default();
        let raise = shortfall.map_or(allowance(largest), |short| short.max(Bytes::mib(64)));
        self.learned += raise;
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::{CardId, Share};

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    fn reason() -> Reason {
        Reason::new("crashed", "it crashed")
    }

    #[test]
    fn load_failures_are_held_back_twice_as_long_each_time_up_to_a_minute() {
        let mut record = Record::default();
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                record.load_failed(at(0), reason());
                record.held_back(at(0)).unwrap().as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn the_first_crash_of_an_engine_that_had_served_is_forgiven_and_a_healthy_minute_clears_the_slate() {
        let mut record = Record::default();
        record.run_failed(at(5), at(0), reason());
        assert_eq!(record.held_back(at(5)), None);
        record.run_failed(at(7), at(6), reason());
        assert_eq!(record.held_back(at(7)), Some(FIRST_WAIT));
        record.run_failed(at(100), at(40), reason());
        assert_eq!(record.held_back(at(100)), None);
    }

    #[test]
    fn a_shortfall_raises_the_demand_by_itself_or_by_five_per_cent_and_never_by_less_than_64_mib() {
        let placement = Placement {
            shares: vec![Share::new(CardId::new("a"), Bytes::gib(10))],
            alone: false,
        };
        for (shortfall, raise) in [
            (None, Bytes::mib(512)),
            (Some(Bytes::mib(900)), Bytes::mib(900)),
            (Some(Bytes::mib(1)), Bytes::mib(64)),
        ] {
            let mut record = Record::default();
            record.learn_shortfall(&placement, shortfall);
            assert_eq!(record.learned, raise);
        }
    }
}
