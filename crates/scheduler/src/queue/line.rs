//! Queues one model's requests fairly: clients take turns by priority, and none starves.

use std::collections::{BTreeMap, HashMap};

use plimsoll_base::Priority;

use crate::time::{ClientId, Moment, RequestId};

/// Clients that are remembered although none of their requests waits.
const REMEMBERED: usize = 64;

/// Class of suspects: they go when no other request waits.
const LAST: usize = 4;

/// Key of a queued request: its class, its round in the class, and its place in the round. Class 0 is that of
/// requests that go before all others, and [`LAST`] that of suspects; the others are the priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineTurn(usize, u64, i64);

/// Age of a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineAge {
    pub(super) priority: Priority,
    pub(super) arrived: Moment,
    pub(super) id: RequestId,
    /// An engine died under it, so that it goes after all others.
    pub(super) is_suspect: bool,
}

impl LineAge {
    /// Index of its ages: suspects have those of class 0.
    fn class(&self) -> usize {
        if self.is_suspect { 0 } else { class(self.priority) }
    }
}

fn class(priority: Priority) -> usize {
    match priority {
        Priority::High => 1,
        Priority::Normal => 2,
        Priority::Low => 3,
    }
}

// DECISION: start-time fair queueing within each priority. Each client has one request in a round, so that a
// client with a hundred requests delays another one by a single request. Every second request that is sent is
// the one whose wait counts longest: otherwise new clients, or a higher priority, could pass a queued request
// without end.
/// Waiting requests of one model.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestLine {
    turns: BTreeMap<LineTurn, RequestId>,
    /// By age, for each class of the requests' own priorities; first those of suspects.
    ages: [BTreeMap<(Moment, RequestId), LineTurn>; 4],
    /// The last round in which each client has a request of a class.
    rounds: HashMap<(usize, ClientId), u64>,
    /// The round of the last request that was sent, for each class.
    round: [u64; 4],
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
        if !self.by_age || turn.0 == 0 || turn.0 == LAST {
            return Some((*turn, *first));
        }
        let counted = |(priority, (arrived, id), _): &(Priority, &(Moment, RequestId), _)| {
            (*arrived + priority.delay(), *id)
        };
        self.firsts().min_by_key(counted).map(|(_, (_, id), turn)| (turn, *id))
    }

    /// The arrival of the request that has waited longest.
    pub(crate) fn oldest(&self) -> Option<Moment> {
        let suspect = self.oldest_suspect().map(|(arrived, _)| arrived);
        self.firsts().map(|(_, (arrived, _), _)| *arrived).chain(suspect).min()
    }

    /// The oldest of the suspects.
    pub(crate) fn suspect(&self) -> Option<RequestId> {
        self.oldest_suspect().map(|(_, id)| id)
    }

    fn oldest_suspect(&self) -> Option<(Moment, RequestId)> {
        self.ages[0].first_key_value().map(|(age, _)| *age)
    }

    /// The earliest time from which a wait counts, by its priority.
    pub(crate) fn first_counted(&self) -> Option<Moment> {
        let suspect = self.oldest_suspect().map(|(arrived, _)| arrived);
        self.firsts().map(|(priority, (arrived, _), _)| *arrived + priority.delay()).chain(suspect).min()
    }

    /// Priority and arrival of at most so many requests of each priority, the oldest of each first.
    pub(crate) fn waits(&self, most: usize) -> impl Iterator<Item = (Priority, Moment)> {
        let each = Priority::ALL.into_iter().zip(&self.ages[1..]);
        each.flat_map(move |(priority, ages)| ages.keys().take(most).map(move |(at, _)| (priority, *at)))
    }

    /// The oldest request of each priority.
    fn firsts(&self) -> impl Iterator<Item = (Priority, &(Moment, RequestId), LineTurn)> {
        let each = Priority::ALL.into_iter().zip(&self.ages[1..]);
        each.filter_map(|(priority, ages)| {
            let (age, turn) = ages.first_key_value()?;
            Some((priority, age, *turn))
        })
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

    pub(crate) fn push_back(&mut self, client: ClientId, age: LineAge) -> LineTurn {
        let class = class(age.priority);
        let now = self.round[class].max(1);
        if self.rounds.len() >= self.turns.len() + REMEMBERED {
            // A client whose last round is over starts in the present one in any case.
            let present = self.round;
            self.rounds.retain(|(class, _), round| *round >= present[*class].max(1));
        }
        let last = self.rounds.entry((class, client)).or_default();
        *last = now.max(*last + 1);
        self.came += 1;
        let turn = LineTurn(class, *last, self.came);
        self.insert(turn, age)
    }

    /// Queues a request that has waited before ahead of all others.
    pub(crate) fn push_front(&mut self, age: LineAge) -> LineTurn {
        self.forwarded += 1;
        self.insert(LineTurn(0, 0, -self.forwarded), age)
    }

    /// Queues a suspect behind all others.
    pub(crate) fn push_last(&mut self, age: LineAge) -> LineTurn {
        self.came += 1;
        self.insert(LineTurn(LAST, 0, self.came), age)
    }

    fn insert(&mut self, turn: LineTurn, age: LineAge) -> LineTurn {
        self.turns.insert(turn, age.id);
        self.ages[age.class()].insert((age.arrived, age.id), turn);
        turn
    }

    pub(super) fn remove(&mut self, turn: LineTurn, age: LineAge) {
        self.turns.remove(&turn);
        self.ages[age.class()].remove(&(age.arrived, age.id));
    }

    /// Takes the request that is sent next; the caller knows its age.
    pub(super) fn pop_front(&mut self, age: impl Fn(RequestId) -> Option<LineAge>) -> Option<RequestId> {
        let (turn, id) = self.next()?;
        self.turns.remove(&turn);
        if let Some(age) = age(id) {
            self.ages[age.class()].remove(&(age.arrived, age.id));
        }
        if (1..LAST).contains(&turn.0) {
            if !self.by_age {
                self.round[turn.0] = turn.1;
            }
            self.by_age = !self.by_age;
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum LineStep {
        Push { client: u64, priority: Priority },
        Pop,
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<LineStep>> {
        let priority = prop::sample::select(Priority::ALL.to_vec());
        let push = (0_u64..4, priority).prop_map(|(client, priority)| LineStep::Push { client, priority });
        prop::collection::vec(
            prop_oneof![3 => push, 2 => Just(LineStep::Pop), 1 => (0_u64..90).prop_map(LineStep::Wait)],
            1..120,
        )
    }

    proptest! {
        // No starvation: every second request that is sent is the one with the longest counted wait. So a
        // request waits for at most twice the requests with an earlier counted time.
        #[test]
        fn a_request_waits_for_twice_those_that_count_as_older_at_most(steps in steps()) {
            let (mut line, mut now) = (RequestLine::default(), Moment::START);
            let mut ages: Vec<LineAge> = Vec::new();
            let mut waiting: Vec<(RequestId, usize)> = Vec::new();
            let mut sent: Vec<(RequestId, usize, usize)> = Vec::new();
            let rest = std::iter::repeat_n(LineStep::Pop, 120);
            for step in steps.into_iter().chain(rest) {
                match step {
                    LineStep::Push { client, priority } => {
                        let id = RequestId(u64::try_from(ages.len()).unwrap());
                        let age = LineAge { priority, arrived: now, id, is_suspect: false };
                        ages.push(age);
                        line.push_back(ClientId(client), age);
                        waiting.push((id, sent.len()));
                    }
                    LineStep::Wait(seconds) => now = now + Duration::from_secs(seconds),
                    LineStep::Pop => {
                        let of = |id: RequestId| ages.get(usize::try_from(id.0).ok()?).copied();
                        let Some(id) = line.pop_front(of) else { continue };
                        let place = waiting.iter().position(|(other, _)| *other == id);
                        prop_assert!(place.is_some(), "sent twice, or never came");
                        let (_, before) = waiting.remove(place.unwrap());
                        sent.push((id, before, sent.len()));
                    }
                }
                let oldest = waiting.iter().map(|(id, _)| ages[usize::try_from(id.0).unwrap()].arrived).min();
                prop_assert_eq!(line.oldest(), oldest);
            }
            prop_assert_eq!(sent.len(), ages.len(), "all are sent");
            let counted = |age: &LineAge| (age.arrived + age.priority.delay(), age.id);
            for (id, before, at) in sent {
                let its = counted(&ages[usize::try_from(id.0).unwrap()]);
                let older = ages.iter().filter(|other| counted(other) < its).count();
                prop_assert!(at - before <= 2 * (older + 1), "{:?} waited for {} of {older}", id, at - before);
            }
        }

        #[test]
        fn of_those_that_came_together_the_higher_priority_goes_first(all in prop::collection::vec(0_usize..3, 1..30)) {
            let mut line = RequestLine::default();
            let age = |number: usize| LineAge {
                priority: Priority::ALL[all[number]],
                arrived: Moment::START,
                id: RequestId(u64::try_from(number).unwrap()),
                is_suspect: false,
            };
            for number in 0..all.len() {
                line.push_back(ClientId(u64::try_from(number).unwrap()), age(number));
            }
            let of = |id: RequestId| usize::try_from(id.0).ok().map(age);
            let sent: Vec<Priority> = std::iter::from_fn(|| of(line.pop_front(of)?).map(|age| age.priority)).collect();
            prop_assert!(sent.is_sorted(), "{sent:?}");
        }
    }
}
