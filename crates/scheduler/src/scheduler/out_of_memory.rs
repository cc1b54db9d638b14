//! Finds out why an engine ran out of memory: its need exceeded the plan, or other processes took memory.
//!
//! The cards are read again before a conclusion. A claim (the memory that an engine may take) rises only for
//! a refused allocation that guard recorded. It rises only by bytes that no other process has taken since the
//! load began.

use plimsoll_base::{AllocationLimit, Bytes, Card, Reason, Shortfall};

use super::Scheduler;
use crate::models::{RunState, StartFigure};

/// The least missing memory: the driver counts in pages of 2 MiB, and pools grow by tens of them.
const LEAST_SHORTFALL: Bytes = Bytes::mib(64);
/// Memory of a process beyond its claim that guard does not see: its CUDA context.
const UNSEEN: Bytes = Bytes::gib(1);

/// Conclusion from a run that ran out of memory.
#[derive(Clone, Debug)]
pub(super) enum MemoryCause {
    /// The model needs this much more than its claim.
    Need(Bytes),
    /// Other processes took the memory.
    Foreign(Reason),
    /// No figure shows which of the two it was.
    Unknown(Reason),
}

impl Scheduler {
    /// Finds the cause of a failure, after the reading that followed it.
    pub(super) fn memory_cause(&self, run: &RunState, shortfall: Option<&Shortfall>) -> MemoryCause {
        if let Some(Shortfall { bytes, limit: AllocationLimit::Budget }) = shortfall {
            // The budget is the model's own, whatever the card had free.
            return MemoryCause::Need((*bytes).max(LEAST_SHORTFALL));
        }
        let start = |card: &_| run.start.iter().find(|start| start.card == *card);
        match shortfall {
            Some(Shortfall {
                bytes,
                limit: AllocationLimit::Driver { card: Some(card), free, occupied },
            }) => match start(card) {
                Some(start) => self.driver_refusal(run, start, *bytes, *free, *occupied),
                None => MemoryCause::Unknown(unknown(
                    "the card that refused the allocation is not \
                    assigned to the engine",
                )),
            },
            _ => match self.crowded_out(run) {
                Some(foreign) => MemoryCause::Foreign(foreign),
                None => MemoryCause::Unknown(unknown("guard recorded no refused allocation")),
            },
        }
    }

    /// Splits the missing memory of an allocation that the driver refused into the part that other processes
    /// took since the start of the load, and the model's own.
    fn driver_refusal(
        &self,
        run: &RunState,
        start: &StartFigure,
        missing: Bytes,
        free: Bytes,
        occupied: Bytes,
    ) -> MemoryCause {
        let Some(account) = self.ledger().account(&start.card) else {
            return MemoryCause::Unknown(unknown(
                "this server no longer manages the card that refused the \
                allocation",
            ));
        };
        let missing = missing.max(LEAST_SHORTFALL);
        let (others, now) = account.without(run.id);
        // A process that has left again by now shows in the driver's answer at the refusal.
        let own = run.placement.on(&start.card).max(occupied) + UNSEEN;
        let then = account.card().total.saturating_sub(free + own + others);
        let answered = self.placements.answers(&start.card);
        let foreign = if answered { now.max(then) } else { then };
        let taken = foreign.saturating_sub(start.foreign);
        if taken >= missing || self.crowded_out(run).is_some() {
            MemoryCause::Foreign(foreign_memory(start, account.card(), taken))
        } else if answered {
            MemoryCause::Need(missing.saturating_sub(taken))
        } else {
            let text = format!("the driver did not report the memory of {}", account.card().name);
            MemoryCause::Unknown(unknown(&text))
        }
    }

    /// Memory that other processes took since the start of the load, if the claim no longer fits beside it.
    fn crowded_out(&self, run: &RunState) -> Option<Reason> {
        run.start.iter().find_map(|start| {
            let account = self.ledger().account(&start.card)?;
            // The run's process is gone, so that none of the memory in use is its own.
            let (others, foreign) = account.without(run.id);
            let need = run.placement.on(&start.card);
            let fits = need + others + foreign + account.reserve() <= account.card().total;
            let taken = foreign.saturating_sub(start.foreign);
            (!fits && !taken.is_zero()).then(|| foreign_memory(start, account.card(), taken))
        })
    }
}

fn foreign_memory(start: &StartFigure, card: &Card, taken: Bytes) -> Reason {
    let text = format!("other processes took {taken} of {} since the start of the load", card.name);
    Reason::new("foreign_memory", text)
        .fact("card", start.card.as_str())
        .fact("foreign", taken)
        .fact("free_at_start", start.free)
        .fact("free", card.free)
}

fn unknown(cause: &str) -> Reason {
    Reason::new("shortfall_unknown", format!("{cause}, so the memory reserved for the model is not changed"))
}
