//! Holds the memory granted to all engines, with the last reading of the cards' memory.
//!
//! Changes are recorded, because waiting models must then be placed again.

use std::time::Duration;

use plimsoll_base::{Bytes, CardId, RunId};

use super::time::Moment;
use crate::place::Ledger;

/// Remembered sets of idle runs that made no room.
const FAILED_SETS: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Placements {
    pub(crate) ledger: Ledger,
    /// Something happened that may let a waiting model in.
    dirty: bool,
    /// Sets of idle runs that made no room for any waiting model, since the last other change.
    failed_victim_sets: Vec<Vec<RunId>>,
    /// The time of the last reading.
    read: Option<Moment>,
    /// Cards in the last reading.
    answering: Vec<CardId>,
    /// A reading was requested at this time.
    requested: Option<Moment>,
    /// The event that is being handled is the reading that was requested.
    answered: bool,
}

impl Placements {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            dirty: false,
            failed_victim_sets: Vec::new(),
            read: None,
            answering: Vec::new(),
            requested: None,
            answered: false,
        }
    }

    /// Marks that memory may have become free, or that the set of waiting models has changed.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty = true;
        self.failed_victim_sets.clear();
    }

    /// A run has become idle. Under traffic that happens thousands of times a second, so waiting models are
    /// looked at again only if no superset of the idle runs is known to make no room.
    pub(crate) fn mark_dirty_for_idle(&mut self, idle: &[RunId]) {
        let known = |set: &Vec<RunId>| idle.iter().all(|run| set.contains(run));
        self.dirty |= !self.failed_victim_sets.iter().any(known);
    }

    pub(crate) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Remembers that these idle runs made no room for any model that still waits.
    pub(crate) fn remember_failed(&mut self, idle: Vec<RunId>) {
        if self.failed_victim_sets.len() == FAILED_SETS {
            // The oldest set is the least likely to match the runs that are idle now.
            self.failed_victim_sets.remove(0);
        }
        self.failed_victim_sets.push(idle);
    }

    /// Records a reading of the cards that was taken at `taken`.
    pub(crate) fn read(&mut self, free: &[(CardId, Bytes)], taken: Moment) {
        self.ledger.read(free);
        self.answering = free.iter().map(|(card, _)| card.clone()).collect();
        // Two readings may overtake each other; the later question counts.
        self.read = self.read.max(Some(taken));
        if self.requested.is_some_and(|requested| taken >= requested) {
            self.requested = None;
            self.answered = true;
        }
    }

    /// True if the driver reported the card's memory in the last reading.
    pub(crate) fn answers(&self, card: &CardId) -> bool {
        self.answering.contains(card)
    }

    /// A claim was released. The last reading took its memory for in use, so a load needs a new one:
    /// meanwhile another process may have taken just as much.
    pub(crate) fn outdate(&mut self) {
        self.read = None;
    }

    /// True if a load may be decided now: the reading was taken for it, or is not older than `age`.
    pub(crate) fn is_fresh(&self, now: Moment, age: Duration) -> bool {
        // A slow driver may take longer than `age` to answer. Its answer counts all the same, or no load
        // would ever start.
        self.answered || self.read.is_some_and(|read| now.since(read) <= age)
    }

    /// Requests a reading. Returns false if one is on its way.
    pub(crate) fn request_reading(&mut self, now: Moment) -> bool {
        let pending = self.requested.is_some();
        self.requested.get_or_insert(now);
        !pending
    }

    /// The event is handled; the next one has to be fresh by itself.
    pub(crate) fn end_event(&mut self) {
        self.answered = false;
    }
}
