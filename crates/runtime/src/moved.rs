//! Notices memory of an engine that its driver has moved from the card to the host's memory.
//!
//! DECISION: amdgpu refuses no allocation that fits in host memory, so a model that is too large becomes slow
//! and does not fail. The kernel's figure of evicted memory tells it; where it states none, memory that the
//! engine takes outside of its card since it became ready. Staging buffers are taken before.

use std::cell::Cell;

use plimsoll_base::Bytes;
use plimsoll_cards::{Holder, Reading};
use serde_json::{Value, json};

use super::Runtime;
use super::memory::group_of;
use super::run::EngineRun;

/// Less is a buffer for transfers, or a page table.
const WORTH_A_WORD: Bytes = Bytes::mib(64);

/// What of a run's memory was moved off its cards.
#[derive(Debug, Default)]
pub(super) struct MovedMemory {
    /// Memory outside of its cards when it became ready.
    at_ready: Cell<Option<Bytes>>,
    now: Cell<Option<Bytes>>,
    reported: Cell<Bytes>,
}

impl MovedMemory {
    /// Zero until it is worth a word; `None` where no driver says it.
    pub(super) fn now(&self) -> Option<Bytes> {
        self.now.get().map(|now| if now < WORTH_A_WORD { Bytes::ZERO } else { now })
    }

    /// Takes the figures of one reading; returns what is to be reported.
    fn take(&self, outside: Bytes, evicted: Option<Bytes>, is_ready: bool) -> Option<Bytes> {
        if is_ready && self.at_ready.get().is_none() {
            self.at_ready.set(Some(outside));
        }
        let grown = || self.at_ready.get().map_or(Bytes::ZERO, |before| outside.saturating_sub(before));
        self.now.set(Some(evicted.unwrap_or_else(grown)));
        let now = self.now().unwrap_or_default();
        // Each doubling is told, and a model that wanders back and forth only once.
        let is_news = !now.is_zero() && now > self.reported.get().scaled(2, 1);
        is_news.then(|| {
            self.reported.set(now);
            now
        })
    }
}

impl Runtime {
    /// Takes what a reading says of memory outside of the cards.
    pub(super) fn notice_moved(&self, reading: &Reading) {
        if self.settings.kernel_cards.is_empty() {
            return;
        }
        for run in self.state.runs() {
            let sum = |figure: fn(&Holder) -> Option<Bytes>| {
                holders_of(&run, reading).filter_map(figure).reduce(|sum, bytes| sum + bytes)
            };
            let outside = sum(|holder| holder.outside).unwrap_or_default();
            let evicted = sum(|holder| holder.evicted);
            if let Some(moved) = run.moved.take(outside, evicted, run.upstream().is_some()) {
                tracing::warn!(
                    model = run.entry.name,
                    "the driver has moved {moved} of the model's memory from its card to host memory, so it is \
                     slow; give it a shorter context or fewer layers on the card (-ngl), or free memory of the card"
                );
            }
        }
    }

    /// Memory of engines that is not where it belongs, for the status document.
    pub(super) fn moved(&self) -> Vec<Value> {
        let of = |run: &EngineRun| {
            let bytes = run.moved.now().filter(|bytes| !bytes.is_zero())?;
            Some(json!({ "model": run.entry.name, "bytes": bytes }))
        };
        self.state.runs().iter().filter_map(|run| of(run)).collect()
    }
}

/// Host memory that the engine takes for its cards, which is no resident memory of its processes.
pub(super) fn outside(run: &EngineRun, reading: &Reading) -> Bytes {
    holders_of(run, reading).filter_map(|holder| holder.outside).sum()
}

fn holders_of<'a>(run: &EngineRun, reading: &'a Reading) -> impl Iterator<Item = &'a Holder> + use<'a> {
    let group = run.pid();
    reading
        .holders
        .iter()
        .filter(move |holder| holder.outside.is_some() || holder.evicted.is_some())
        .filter(move |holder| group.is_some() && group_of(holder) == group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_since_the_engine_is_ready_is_reported_once_and_each_doubling_again() {
        let moved = MovedMemory::default();
        let take = |mib| moved.take(Bytes::mib(mib), None, true);
        assert_eq!(moved.take(Bytes::mib(300), None, false), None, "it loads");
        assert_eq!((take(300), take(350)), (None, None));
        assert_eq!((take(400), moved.now()), (Some(Bytes::mib(100)), Some(Bytes::mib(100))));
        assert_eq!((take(420), take(390)), (None, None));
        assert_eq!(take(700), Some(Bytes::mib(400)));
        assert_eq!((take(300), moved.now()), (None, Some(Bytes::ZERO)), "it is back");
    }

    #[test]
    fn a_figure_of_the_driver_is_believed_before_a_growth() {
        let moved = MovedMemory::default();
        assert_eq!(moved.take(Bytes::mib(50), Some(Bytes::gib(1)), false), Some(Bytes::gib(1)));
        assert_eq!(moved.take(Bytes::gib(9), Some(Bytes::ZERO), true), None);
        assert_eq!(moved.now(), Some(Bytes::ZERO));
    }
}
