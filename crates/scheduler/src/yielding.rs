//! Tracks engine processes that are being stopped so that other programs can use their memory.

use std::collections::BTreeMap;

use plimsoll_base::{CardId, Reason, RunId};

#[derive(Clone, Debug, Default)]
pub(crate) struct Yielding(BTreeMap<RunId, (CardId, Reason)>);

impl Yielding {
    pub(crate) fn add(&mut self, run: RunId, card: &CardId, reason: Reason) {
        self.0.insert(run, (card.clone(), reason));
    }

    /// Drops runs that need not leave any more, or have left.
    pub(crate) fn retain(&mut self, leaves: impl Fn(RunId, &CardId) -> bool) {
        self.0.retain(|run, (card, _)| leaves(*run, card));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = RunId> {
        self.0.keys().copied()
    }

    /// Runs that leave for memory of this card.
    pub(crate) fn on(&self, card: &CardId) -> impl Iterator<Item = RunId> {
        self.0.iter().filter(move |(_, (from, _))| from == card).map(|(run, _)| *run)
    }

    pub(crate) fn reason(&self, run: RunId) -> Option<Reason> {
        self.0.get(&run).map(|(_, reason)| reason.clone())
    }
}
