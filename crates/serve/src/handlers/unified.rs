//! Page cache around loads on a machine with cards that share the host's memory (Jetson, GB10).
//!
//! DECISION: the page cache of the files that a load has read is dropped as soon as the weights are on the
//! card, always: no process reads it again, drivers there count it as used, and it is the model's own, so
//! that it costs no other program anything. Making room *before* a load affects memory that others may want
//! again, and may need root, so it is done only on request (`reclaim-before-load`). No model is ever stopped
//! for page cache: the ledger counts it as free, as the kernel does.

mod after;
mod before;
mod files;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::End;
use plimsoll_config::ReclaimBeforeLoad;

use super::guard::GuardHandler;
use crate::runtime::{BeforeLoad, EngineRun, Extension, Runtime};

#[derive(Debug)]
pub(super) struct Unified {
    guard: Rc<GuardHandler>,
    reclaim: ReclaimBeforeLoad,
    /// Time that guarded processes get to release idle memory; zero asks none.
    ask: Duration,
    /// One load reclaims at a time: the steps of two would free each other's memory.
    reclaiming: Arc<tokio::sync::Mutex<()>>,
}

impl Unified {
    pub(super) fn new(guard: Rc<GuardHandler>, reclaim: ReclaimBeforeLoad, ask: Duration) -> Self {
        Self {
            guard,
            reclaim,
            ask,
            reclaiming: Arc::default(),
        }
    }
}

impl Extension for Unified {
    fn before_load(&self, runtime: &Rc<Runtime>, run: &Rc<EngineRun>) -> Option<BeforeLoad> {
        let job = self.job()?;
        Some(Box::pin(before::reclaim_for(
            Rc::clone(runtime),
            Rc::clone(run),
            job,
        )))
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
