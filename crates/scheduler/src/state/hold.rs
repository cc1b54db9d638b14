//! Computes how long a model keeps its memory between two requests, and what its eviction would cost.

use std::time::Duration;

use super::StateRef;
use crate::models::{ModelSlot, RunPhase, RunState};
use crate::time::Moment;

/// A model that was idle for longer is less likely to be wanted again, and costs less to stop.
const RECENT: Duration = Duration::from_secs(60);
/// An idle model waits for this part of its load time for further requests.
const QUIET: u32 = 4;

impl StateRef<'_> {
    /// The time until which an idle run counts as busy, because its clients are expected to go on.
    pub(crate) fn kept_until(self, slot: &ModelSlot, all_wait: bool) -> Option<Moment> {
        let run = slot.run.as_ref().filter(|run| run.is_idle() && slot.line.is_empty())?;
        let RunPhase::Ready { idle_since, .. } = run.phase else { return None };
        // DECISION: the hold bounds one pause. The turn bounds an agent's holds in all.
        let series = slot.pauses.expected_until();
        // Clients that use several models are worth a short wait: each swap then answers more of them. None
        // is left to wait for if all wait for models that are not loaded.
        let quiet = (!all_wait).then(|| idle_since + slot.load_time.unwrap_or_default() / QUIET);
        let left = slot.left.map(|left| left.until);
        series.max(quiet).max(left).map(|until| until.min(idle_since + slot.spec.hold))
    }

    /// True if as many requests wait for models that are not loaded as were open at once lately.
    pub(crate) fn all_wait(self) -> bool {
        let loaded = self.models.running().filter(|(_, _, run)| run.takes_requests());
        let waiting = self.queue.queued() - loaded.map(|(_, slot, _)| slot.line.len()).sum::<usize>();
        waiting >= self.queue.open_at_most()
    }

    /// Cost of stopping a run: the milliseconds of its next load, less if it is less likely to be loaded
    /// again.
    pub(crate) fn eviction_cost(self, slot: &ModelSlot, run: &RunState) -> u64 {
        let idle = run.idle_since().map_or(Duration::ZERO, |since| self.now.since(since));
        let cost = self.expected_load(slot).as_millis() * RECENT.as_millis() / idle.max(RECENT).as_millis();
        // DECISION: in powers of two, since no load takes the same time twice. Among loads of about the same
        // time, the least recently used model leaves.
        1000 << u64::try_from(cost / 1000).unwrap_or(u64::MAX).clamp(1, 1 << 32).ilog2()
    }
}
