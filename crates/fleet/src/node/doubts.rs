//! Verifies the fleet's records that arrived through another host, by reading them in the fleet's store.
//!
//! If the news contradicts this host's own seats (its records of loaded models), the store decides. A source
//! with news that the store does not confirm is dropped, and this host then reads the store itself.
//!
//! DECISION: a follower verifies what it uses, not everything that it receives. Sources exist to avoid
//! repeated full reads of the store. An error that no check finds lasts only as long as this host follows
//! that source.

use std::collections::BTreeMap;
use std::time::Duration;

use super::seat_holder::OccupiedSeat;
use super::{FleetEffect, FleetNode, NumberedSeats, Operation};
use crate::records::{Seat, SeatCause};
use crate::source::NewsSource;
use crate::view::{FleetView, Versioned};

/// Claims of a model, or attempts of a registration, that conflict one after the other until the news are
/// doubted.
pub(super) const CONFLICTS: u32 = 8;
/// Confirmations of the store against the news until they are doubted: the first may have come before late
/// news.
const CONTRADICTIONS: u32 = 3;
/// Least time between two confirmations of one model's seat.
const CONFIRM_AGAIN: Duration = Duration::from_secs(1);

/// Questions of this host to the store about its own seats.
#[derive(Debug, Default)]
pub(super) struct SeatDoubts {
    /// Models whose seats were confirmed, with the time before which they are not confirmed again.
    requested: BTreeMap<String, Duration>,
    contradictions: u32,
}

impl FleetNode {
    /// Where the news come from, from now on.
    pub(super) fn take_source(&mut self, source: NewsSource) {
        self.trust.from = source;
        self.doubts = SeatDoubts::default();
    }

    /// Takes all records of a revision, unless they contradict what was known.
    ///
    /// A reading of the store that contradicts a former one is that of a restored store. One that contradicts
    /// the news of a host shows that the host has lied, unless the store may have been restored since. Of two
    /// hosts that contradict each other the store tells which one has.
    pub(super) fn read(&mut self, now: Duration, mut view: FleetView, effects: &mut Vec<FleetEffect>) {
        // A reading that was under way when this daemon wrote may lack what was written.
        let is_forked = self.applied <= view.revision && self.view.contradicts(&view);
        match (is_forked, &self.trust.from) {
            (true, NewsSource::Host { .. }) => {
                return match self.trust.read_from {
                    NewsSource::Store => self.doubt_news(now, effects),
                    NewsSource::Host { .. } => effects.push(FleetEffect::LeaveSource),
                };
            }
            (true, NewsSource::Store) => {
                let former = self.trust.read_from.clone();
                if former == NewsSource::Store || self.may_be_restored(&view) {
                    self.begin_life(effects);
                    effects.push(FleetEffect::StoreRestored);
                } else if let NewsSource::Host { name, .. } = &former
                    && self.trust.doubt(now, &former)
                {
                    effects.push(FleetEffect::NewsDoubted { host: name.clone() });
                }
            }
            (false, _) => {}
        }
        self.silent = None;
        self.trust.was_silent &= self.trust.from != NewsSource::Store;
        view.distrusted = std::mem::take(&mut self.view.distrusted);
        let before = std::mem::replace(&mut self.view, view);
        self.trust.read_from = self.trust.from.clone();
        self.note_gone(now, &before.hosts);
    }

    /// True if the store itself has gone back, or was out of sight for a while, in which it may have.
    ///
    /// DECISION: such a contradiction proves no lie. A new life costs this host its seats; a host that is
    /// doubted wrongly costs the fleet a source.
    fn may_be_restored(&self, reading: &FleetView) -> bool {
        let own = reading.states.get(&self.settings.name).map(|state| state.revision);
        self.trust.was_silent || own.is_some_and(|revision| revision < self.registration.state_written)
    }

    /// Leaves the news source for the store itself. News of the store are not doubted.
    pub(super) fn doubt_news(&mut self, now: Duration, effects: &mut Vec<FleetEffect>) {
        let from = self.trust.from.clone();
        if self.trust.doubt(now, &from)
            && let NewsSource::Host { name, .. } = from
        {
            effects.push(FleetEffect::NewsDoubted { host: name });
            effects.push(FleetEffect::LeaveSource);
        }
    }

    /// Asks the store for the seats of a model of this host, if it was not asked a moment ago.
    pub(super) fn confirm_reported(&mut self, now: Duration, model: &str, effects: &mut Vec<FleetEffect>) {
        if self.doubts.requested.get(model).is_some_and(|again| *again > now) {
            return;
        }
        self.doubts.requested.insert(model.to_owned(), now + CONFIRM_AGAIN);
        let operation = self.begin(Operation::ConfirmReported { model: model.to_owned() });
        effects.push(FleetEffect::ReadSeat { operation, model: model.to_owned() });
    }

    /// Takes the store's seats of a model, after news from another host about them.
    pub(super) fn reported_confirmed(
        &mut self,
        now: Duration,
        model: &str,
        found: Option<NumberedSeats>,
        effects: &mut Vec<FleetEffect>,
    ) {
        let Some(found) = found else { return };
        let mine = found.iter().find(|(_, seat)| self.is_mine(&seat.record.body));
        let occupied = mine.map(|(number, seat)| OccupiedSeat {
            model: model.to_owned(),
            number: *number,
            token: seat.revision,
        });
        let need = mine.map(|(_, seat)| seat.record.body.need);
        let run = self.runs.get(model).map(|run| (run.token, run.number, run.leaves));
        match (run, occupied) {
            (Some((Some(token), number, _)), occupied)
                if occupied.as_ref().is_none_or(|it| it.token != token) =>
            {
                let moved = |(at, seat): &(u32, Versioned<Seat>)| {
                    *at == number && seat.record.body.cause == SeatCause::Moved
                };
                let leaves = found.iter().any(moved) || self.is_evicted(token);
                self.lose(model, token, leaves, effects);
            }
            (Some((None, _, false)), Some(occupied)) if self.is_unburnt(model, occupied.token) => {
                self.adopt(&occupied, need.unwrap_or_default());
            }
            (None, Some(occupied)) if self.is_unclaimed(now, &occupied) => {
                self.give_up(now, occupied, effects)
            }
            _ => {
                self.doubts.contradictions += 1;
                if self.doubts.contradictions >= CONTRADICTIONS {
                    self.doubt_news(now, effects);
                }
            }
        }
    }
}
