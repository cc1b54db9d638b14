//! A run that asks for more than it has.
//!
//! Guard pleads before it refuses a request. The books decide: where the card has room that nobody claims, the claim is raised;
//! else idle neighbours go, the fewest that suffice, as for a newcomer. If all of them together do not suffice, nobody goes and the plea
//! is declined. Whoever pleads is at work, so it is served before those who wait to be loaded.

use plimsoll_base::{Bytes, CardId, RunId};

use super::effect::Effect;
use super::model::Drain;
use super::moment::ModelId;
use super::scheduler::Scheduler;
use crate::place::{Candidate, smallest};

/// A plea that waits for neighbours to go.
#[derive(Debug)]
pub(super) struct Plea {
    run: RunId,
    card: CardId,
    asked: Bytes,
    /// What the run will hold of the card if it gets what it asks for.
    wanted: Bytes,
    /// Neighbours that go and whose memory is not back yet.
    pub(super) after: Vec<RunId>,
}

impl Plea {
    pub(super) fn asked(&self) -> Bytes {
        self.asked
    }

    pub(super) fn run(&self) -> RunId {
        self.run
    }
}

impl Scheduler {
    pub(super) fn pleaded(&mut self, run: RunId, card: CardId, asked: Bytes, wanted: Bytes) {
        if !self.living.contains_key(&run) || self.pleas.iter().any(|plea| plea.run == run) {
            return;
        }
        let mut plea = Plea {
            run,
            card,
            asked,
            wanted,
            after: Vec::new(),
        };
        let missing = self.missing(&plea);
        if missing.is_zero() {
            return self.grant(&plea);
        }
        match self.enough_idle(&plea, missing) {
            Some(victims) => {
                plea.after = victims.iter().map(|(run, _)| *run).collect();
                self.pleas.push(plea);
                for (_, model) in victims {
                    self.drain(model, Drain::Evict);
                }
            }
            None => self.emit(Effect::Pleaded { run, claim: None }),
        }
    }

    /// The memory of `gone` is back.
    pub(super) fn resume_pleas(&mut self, gone: RunId) {
        for plea in &mut self.pleas {
            plea.after.retain(|run| *run != gone);
        }
        let (ready, waiting) = std::mem::take(&mut self.pleas)
            .into_iter()
            .partition(|plea: &Plea| plea.after.is_empty());
        self.pleas = waiting;
        for plea in ready {
            self.grant(&plea);
        }
    }

    /// Nobody waits for an answer any more.
    pub(super) fn forget_pleas(&mut self, run: RunId) {
        self.pleas.retain(|plea| plea.run != run);
    }

    /// What lacks: in the books, or by the driver's word.
    fn missing(&self, plea: &Plea) -> Bytes {
        let Some(account) = self.ledger.account(&plea.card) else {
            return Bytes::MAX;
        };
        let raise = plea.wanted.saturating_sub(account.held_by(plea.run));
        let in_books = raise.saturating_sub(account.free());
        in_books.max(plea.asked.saturating_sub(account.card().free))
    }

    /// Raises the claim as far as the books have room, which may be less than was asked for.
    fn grant(&mut self, plea: &Plea) {
        let claim = self.ledger.raise(plea.run, &plea.card, plea.wanted);
        let run = plea.run;
        self.emit(Effect::Pleaded { run, claim });
    }

    fn enough_idle(&self, plea: &Plea, missing: Bytes) -> Option<Vec<(RunId, ModelId)>> {
        let account = self.ledger.account(&plea.card)?;
        let mut idle: Vec<(u64, RunId, ModelId)> = self
            .idle_on(std::slice::from_ref(&plea.card))
            .into_iter()
            .filter_map(|model| {
                let run = self.model(model)?.run.as_ref()?;
                (run.id != plea.run).then_some((run.stamp, run.id, model))
            })
            .collect();
        idle.sort_unstable();
        let candidates: Vec<Candidate> = idle
            .iter()
            .map(|(_, run, _)| Candidate {
                run: *run,
                frees: vec![account.held_by(*run)],
            })
            .collect();
        let chosen = smallest(&[missing], &candidates)?;
        let victims = idle.into_iter().filter(|(_, run, _)| chosen.contains(run));
        Some(victims.map(|(_, run, model)| (run, model)).collect())
    }
}
