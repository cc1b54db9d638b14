//! Fair queue of one model's requests: clients take turns, and none is passed for ever.

use std::collections::{BTreeMap, HashMap};

use crate::time::{ClientId, Moment, RequestId};

/// Clients that are remembered although none of their requests waits.
const REMEMBERED: usize = 64;

/// Key of a queued request: its round, and its place in the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineTurn(u64, i64);

// DECISION: start-time fair queueing. Each client has one request in a round, so that a client with a hundred requests
// delays another one by a single request. Every second request that is sent is the oldest of all: otherwise new
// clients could pass a queued request without end.
/// Waiting requests of one model.
#[derive(Debug, Default)]
pub(crate) struct RequestLine {
    turns: BTreeMap<LineTurn, RequestId>,
    ages: BTreeMap<(Moment, RequestId), LineTurn>,
    /// The last round in which each client has a request.
    rounds: HashMap<ClientId, u64>,
    /// The round of the last request that was sent. Round 0 is that of requests that go before all others.
    round: u64,
    /// Requests that came so far, and requests that were put first.
    came: i64,
    forwarded: i64,
    /// The next request is the oldest.
    by_age: bool,
}

impl RequestLine {
    /// The request that is sent next.
    pub(crate) fn front(&self) -> Option<RequestId> {
        Some(self.next()?.1)
    }

    fn next(&self) -> Option<(LineTurn, RequestId)> {
        let (turn, first) = self.turns.first_key_value()?;
        match self.ages.first_key_value().filter(|_| self.by_age && turn.0 > 0) {
            Some(((_, oldest), turn)) => Some((*turn, *oldest)),
            None => Some((*turn, *first)),
        }
    }

    /// The arrival of the request that has waited longest.
    pub(crate) fn oldest(&self) -> Option<Moment> {
        self.ages.first_key_value().map(|((arrived, _), _)| *arrived)
    }

    pub(crate) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = RequestId> {
        self.turns.values().copied()
    }

    pub(super) fn push_back(&mut self, id: RequestId, client: ClientId, arrived: Moment) -> LineTurn {
        let now = self.round.max(1);
        if self.rounds.len() >= self.turns.len() + REMEMBERED {
            // A client whose last round is over starts in the present one in any case.
            self.rounds.retain(|_, round| *round >= now);
        }
        let last = self.rounds.entry(client).or_default();
        *last = now.max(*last + 1);
        self.came += 1;
        let turn = LineTurn(*last, self.came);
        self.insert(turn, id, arrived)
    }

    pub(super) fn push_front(&mut self, id: RequestId, arrived: Moment) -> LineTurn {
        self.forwarded += 1;
        self.insert(LineTurn(0, -self.forwarded), id, arrived)
    }

    fn insert(&mut self, turn: LineTurn, id: RequestId, arrived: Moment) -> LineTurn {
        self.turns.insert(turn, id);
        self.ages.insert((arrived, id), turn);
        turn
    }

    pub(super) fn remove(&mut self, turn: LineTurn, age: (Moment, RequestId)) {
        self.turns.remove(&turn);
        self.ages.remove(&age);
    }

    /// Takes the request that is sent next; the caller knows its arrival.
    pub(super) fn pop_front(&mut self, arrived: impl Fn(RequestId) -> Option<Moment>) -> Option<RequestId> {
        let (turn, id) = self.next()?;
        self.turns.remove(&turn);
        if let Some(arrived) = arrived(id) {
            self.ages.remove(&(arrived, id));
        }
        if turn.0 > 0 {
            if !self.by_age {
                self.round = turn.0;
            }
            self.by_age = !self.by_age;
        }
        Some(id)
    }
}
