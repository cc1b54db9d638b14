//! Drops page cache before and after loads, on machines whose GPU shares the host's memory (Jetson, GB10).
//!
//! The GPU drivers of these machines count page cache as used memory. After every load, the page cache of the
//! model's files is released.

mod after;
mod before;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::End;
use plimsoll_config::ReclaimBeforeLoad;

use super::guard::GuardHandler;
use plimsoll_runtime::{BeforeLoad, EngineRun, Extension, Runtime};

#[derive(Debug)]
pub(super) struct Unified {
    guard: Rc<GuardHandler>,
    reclaim: ReclaimBeforeLoad,
    /// Time that guarded processes get to release idle memory; zero sends no requests.
    ask: Duration,
    /// One load reclaims at a time: the steps of two would free each other's memory.
    reclaiming: Arc<tokio::sync::Mutex<()>>,
}

impl Unified {
    pub(super) fn new(guard: Rc<GuardHandler>, reclaim: ReclaimBeforeLoad, ask: Duration) -> Self {
        Self { guard, reclaim, ask, reclaiming: Arc::default() }
    }
}

impl Extension for Unified {
    fn before_load(&self, runtime: &Rc<Runtime>, run: &Rc<EngineRun>) -> Option<BeforeLoad> {
        // DECISION: before a load, this is done only with `reclaim-before-load`, because it affects other
        // programs.
        let job = self.job()?;
        Some(Box::pin(before::reclaim_for(Rc::clone(runtime), Rc::clone(run), job)))
    }

    fn loaded(&self, runtime: &Rc<Runtime>, run: &Rc<EngineRun>) {
        after::drop_page_cache(runtime, run);
    }

    fn ended(&self, runtime: &Runtime, run: &EngineRun, end: &End) {
        if self.reclaim == ReclaimBeforeLoad::Off {
            // With the setting on, the steps that were taken are the hint.
            before::hint_at_reclaim(runtime, run, end);
        }
    }
}
