//! Holds the engine processes that have not ended, and ended ones whose memory the driver has not freed yet.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::RunId;

use super::time::{ModelId, SearchId};

#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    pub(crate) living: BTreeMap<RunId, ModelId>,
    /// Ended, with memory outstanding.
    pub(crate) leaving: BTreeSet<RunId>,
    /// The number of the last run. 0 is left out, so that a run's number is never that of an empty field of
    /// a report.
    last: u64,
    search: SearchId,
    stamp: u64,
}

impl Runs {
    /// The number that the next run will get.
    pub(crate) fn next_id(&self) -> RunId {
        RunId(self.last + 1)
    }

    pub(crate) fn begin(&mut self, model: ModelId) -> RunId {
        let id = self.next_id();
        // Never reused: a late event about an old run must not reach a new one.
        self.last += 1;
        self.living.insert(id, model);
        id
    }

    pub(crate) fn model_of(&self, run: RunId) -> Option<ModelId> {
        self.living.get(&run).copied()
    }

    /// True while the run may hold memory.
    pub(crate) fn holds_memory(&self, run: RunId) -> bool {
        // Memory of a process that has exited is still in use until the driver has returned it.
        self.leaving.contains(&run) || self.living.contains_key(&run)
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
