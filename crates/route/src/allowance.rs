//! Limits an API key to a number of requests or tokens per minute, by a token bucket that refills
//! continuously.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Parts of a unit: an allowance of one unit per minute gains one part in each millisecond.
const PARTS: i128 = 60_000;
/// The longest time for which an overdrawn allowance refuses. An engine's count is not proven, and a count of
/// billions must not end a key.
const LONGEST: i128 = 60 * PARTS;

/// Units that may be used now. At most the units of one minute are saved up.
///
/// DECISION: what an answer takes is known when it is over, so an allowance may be overdrawn. It refuses
/// until it has one unit again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    per_minute: i128,
    left: i128,
    at: Instant,
}

impl Allowance {
    pub(super) fn new(per_minute: NonZeroU32, now: Instant) -> Self {
        let per_minute = i128::from(per_minute.get());
        Self { per_minute, left: per_minute * PARTS, at: now }
    }

    /// Another allowance per minute that has been used as much as this one.
    pub(super) fn changed_to(self, per_minute: NonZeroU32) -> Self {
        let new = Self::new(per_minute, self.at);
        Self {
            left: (new.left - (self.per_minute * PARTS - self.left)).max(-new.per_minute * LONGEST),
            ..new
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        // Whole milliseconds only, so that the rest counts next time.
        let millis = passed.as_millis();
        self.at += Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX).min(u64::from(u32::MAX)));
        let gained = i128::try_from(millis).unwrap_or(i128::MAX).saturating_mul(self.per_minute);
        self.left = self.left.saturating_add(gained).min(self.per_minute * PARTS);
    }

    /// The time until there is a unit; zero if there is one.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        self.refill(now);
        let lacks = (PARTS - self.left).max(0);
        let millis = lacks.saturating_add(self.per_minute - 1) / self.per_minute;
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    pub(super) fn spend(&mut self, units: u64, now: Instant) {
        self.refill(now);
        let spent = i128::from(units) * PARTS;
        self.left = (self.left - spent).max(-self.per_minute * LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn per_minute(units: u32) -> NonZeroU32 {
        NonZeroU32::new(units).unwrap()
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_twice_the_allowance_and_none_is_lost(
            units in 1_u32..200,
            pauses in prop::collection::vec(0_u64..3_000, 1..400),
        ) {
            let start = Instant::now();
            let mut allowance = Allowance::new(per_minute(units), start);
            let mut now = start;
            let mut taken: Vec<Instant> = Vec::new();
            for pause in pauses {
                now += Duration::from_millis(pause);
                let wait = allowance.wait(now);
                if wait.is_zero() {
                    allowance.spend(1, now);
                    taken.push(now);
                } else {
                    // The stated time suffices.
                    let mut later = allowance;
                    prop_assert_eq!(later.wait(now + wait), Duration::ZERO);
                }
            }
            for (place, from) in taken.iter().enumerate() {
                let within = taken[place..].iter().take_while(|at| **at - *from <= Duration::from_secs(60)).count();
                prop_assert!(within <= 2 * usize::try_from(units).unwrap() + 1, "{within} of {units}");
            }
        }
    }

    #[test]
    fn an_overdrawn_allowance_recovers_and_a_false_count_ends_nothing() {
        let now = Instant::now();
        let mut allowance = Allowance::new(per_minute(60), now);
        assert_eq!(allowance.wait(now), Duration::ZERO);
        allowance.spend(100, now);
        assert_eq!(allowance.wait(now), Duration::from_secs(41));
        assert_eq!(allowance.wait(now + Duration::from_secs(41)), Duration::ZERO);
        allowance.spend(u64::MAX, now);
        assert!(allowance.wait(now) <= Duration::from_secs(3601));
        // A reload keeps what was used.
        let mut used = Allowance::new(per_minute(60), now);
        used.spend(60, now);
        assert_eq!(used.changed_to(per_minute(120)).wait(now), Duration::ZERO);
        assert_eq!(used.changed_to(per_minute(30)).wait(now), Duration::from_secs(62));
    }
}
