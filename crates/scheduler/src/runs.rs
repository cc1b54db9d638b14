//! Holds the engine processes that have not ended, and ended ones whose memory the driver has not freed yet.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::RunId;

use super::time::{ModelId, SearchId};

#[derive(Clone, Debug)]
pub(crate) struct Runs {
    living: BTreeMap<RunId, ModelId>,
    /// Ended, with memory outstanding.
    leaving: BTreeSet<RunId>,
    next: u64,
    search: SearchId,
    stamp: u64,
}

impl Runs {
    pub(crate) fn new() -> Self {
        Self {
            living: BTreeMap::new(),
            leaving: BTreeSet::new(),
            // 0 is left out, so that a run's number is never that of an empty field of a report.
            next: 1,
            search: SearchId::default(),
            stamp: 0,
        }
    }

    /// The number that the next run will get.
    pub(crate) fn next_id(&self) -> RunId {
        RunId(self.next)
    }

    pub(crate) fn begin(&mut self, model: ModelId) -> RunId {
        let id = self.next_id();
        // Never reused: a late event about an old run must not reach a new one.
        self.next += 1;
        self.living.insert(id, model);
        id
    }

    /// Takes the end of a process; None if it has ended before.
    pub(crate) fn end(&mut self, run: RunId) -> Option<ModelId> {
        self.living.remove(&run)
    }

    /// Waits for the memory of a run that has ended.
    pub(crate) fn leave(&mut self, run: RunId) {
        self.leaving.insert(run);
    }

    /// Takes the return of a run's memory; false if it was not outstanding.
    pub(crate) fn returned(&mut self, run: RunId) -> bool {
        self.leaving.remove(&run)
    }

    /// Stops waiting for memory of any run.
    pub(crate) fn take_leaving(&mut self) -> BTreeSet<RunId> {
        std::mem::take(&mut self.leaving)
    }

    pub(crate) fn model_of(&self, run: RunId) -> Option<ModelId> {
        self.living.get(&run).copied()
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = (RunId, ModelId)> {
        self.living.iter().map(|(run, model)| (*run, *model))
    }

    pub(crate) fn leaving(&self) -> impl ExactSizeIterator<Item = RunId> {
        self.leaving.iter().copied()
    }

    /// True while the run may hold memory.
    pub(crate) fn holds_memory(&self, run: RunId) -> bool {
        // Memory of a process that has exited is still in use until the driver has returned it.
        self.leaving.contains(&run) || self.living.contains_key(&run)
    }

    pub(crate) fn none_living(&self) -> bool {
        self.living.is_empty()
    }

    /// The number of the next search for memory.
    pub(crate) fn next_search(&mut self) -> SearchId {
        self.search.0 += 1;
        self.search
    }

    /// The next mark in the order of use over all runs.
    pub(crate) fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }
}
