//! Measures the pauses of a model's clients, from the end of an answer to the next request.
//!
//! They predict whether another request will follow. An agent makes its requests with pauses of about the
//! same length.

use std::time::Duration;

use crate::time::Moment;

/// A client may take twice its usual pause, and this much longer.
const LATE: Duration = Duration::from_millis(100);

/// The latest pauses of a model's clients. They outlive its engine process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientPauses {
    /// The end of the last request, until the next one arrives.
    answered: Option<Moment>,
    latest: [Duration; 2],
}

impl ClientPauses {
    /// The last of the requests has ended.
    pub(crate) fn begin(&mut self, now: Moment) {
        self.answered = Some(now);
    }

    /// A request has arrived; `loaded` is the time at which any model became ready last.
    pub(crate) fn end(&mut self, now: Moment, hold: Duration, loaded: Moment) {
        let Some(answered) = self.answered.take() else { return };
        let pause = now.since(answered);
        // A client that uses two models in turn comes back when the other one has answered. To hold its first
        // model would only delay the second. A pause longer than the hold is that of other clients, or of
        // another task.
        let goes_on = pause <= hold && loaded <= answered;
        self.latest = if goes_on { [pause, self.latest[0]] } else { [Duration::ZERO; 2] };
    }

    /// The time until which the next request is expected; None if nothing suggests one.
    pub(crate) fn expected_until(&self) -> Option<Moment> {
        let [latest, before] = self.latest;
        Some(self.answered.filter(|_| self.is_series())? + 2 * latest.max(before) + LATE)
    }

    /// True if a client goes on. Two pauses are a series; one may be that of a client which then turns to
    /// another model.
    pub(crate) fn is_series(&self) -> bool {
        self.latest.iter().all(|pause| !pause.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(10);

    fn at(milliseconds: u64) -> Moment {
        Moment::at(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_client_is_expected_for_twice_its_longest_recent_pause() {
        let mut pauses = ClientPauses::default();
        pauses.begin(at(0));
        assert_eq!(pauses.expected_until(), None, "one answer is no series");
        pauses.end(at(300), HOLD, at(0));
        assert_eq!(pauses.expected_until(), None, "its request is under way");
        pauses.begin(at(400));
        assert_eq!(pauses.expected_until(), None, "one pause is no series");
        pauses.end(at(500), HOLD, at(0));
        pauses.begin(at(600));
        assert_eq!(pauses.expected_until(), Some(at(1300)));
    }

    #[test]
    fn a_pause_longer_than_the_hold_ends_the_series() {
        let mut pauses = ClientPauses::default();
        pauses.begin(at(0));
        for time in [400, 800] {
            pauses.end(at(time - 100), HOLD, at(0));
            pauses.begin(at(time));
        }
        assert!(pauses.expected_until().is_some());
        pauses.end(at(10_801), HOLD, at(0));
        pauses.begin(at(10_900));
        assert_eq!(pauses.expected_until(), None);
    }
}
