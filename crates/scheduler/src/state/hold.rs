//! Rules that keep a model loaded: its protection after the load, its hold between two requests, and its eviction cost.

use std::time::Duration;

use super::StateRef;
use crate::models::{ModelSlot, RunPhase, RunState};
use crate::time::Moment;

/// A model that was idle for longer is less likely to be wanted again, and costs less to stop.
const RECENT: Duration = Duration::from_secs(10);
/// An idle model waits for this part of its load time for further requests.
const QUIET: u32 = 4;

impl StateRef<'_> {
    /// Time after the load for which a busy run is no victim. It is `late` if the load began when the other model
    /// was waiting already.
    pub(crate) fn protection(self, slot: &ModelSlot, late: bool) -> Duration {
        // DECISION: the time of the load counts, because the others wait through it as well. A third of the patience
        // remains, so that a model is not loaded for a single answer.
        let patience = self.settings.patience;
        let after_load = if late { Duration::ZERO } else { patience.saturating_sub(slot.load_time) };
        after_load.max(patience / 3)
    }

    /// The time until which an idle run counts as busy, because its clients are expected to go on.
    pub(crate) fn held_until(self, slot: &ModelSlot) -> Option<Moment> {
        let run = slot.run.as_ref().filter(|run| run.is_idle() && slot.line.is_empty())?;
        let RunPhase::Ready { since, idle_since } = run.phase else {
            return None;
        };
        // DECISION: the hold counts from the load, not from the last answer. Otherwise one busy agent would keep
        // the card for as long as the patience of the others allows, each time.
        let series = slot.pauses.expected_until();
        // Clients that use several models are worth a short wait: each swap then answers more of them. None is
        // left to wait for if all wait for models that are not loaded.
        let quiet = (!self.all_wait()).then(|| idle_since + slot.load_time / QUIET);
        series.max(quiet).map(|until| until.min(since + slot.spec.hold))
    }

    /// True if as many requests wait for models that are not loaded as were open at once lately.
    pub(crate) fn all_wait(self) -> bool {
        let loaded = |slot: &ModelSlot| slot.run.as_ref().is_some_and(RunState::takes_requests);
        let waiting = self.models.iter().filter(|(_, slot)| !loaded(slot)).map(|(_, slot)| slot.line.len());
        waiting.sum::<usize>() >= self.queue.open_at_most()
    }

    /// Cost of stopping a run: the seconds of its next load, less if it is less likely to be loaded again.
    pub(crate) fn eviction_cost(self, slot: &ModelSlot, run: &RunState) -> u64 {
        let idle = run.idle_since().map_or(Duration::ZERO, |since| self.now.since(since));
        let cost = slot.load_time.as_millis() * RECENT.as_millis() / idle.max(RECENT).as_millis();
        // DECISION: in powers of two, since no load takes the same time twice. Among loads of about the same time, the
        // least recently used model leaves.
        1 << u64::try_from(cost / 1000).unwrap_or(u64::MAX).max(1).ilog2()
    }
}
