//! Estimates how little time clients could lose if every request were known beforehand, by a beam search over
//! the order of loads.
//!
//! It plays an easier machine: loads do not share the disk, engines have no faults, and clients that give up
//! wait instead. Its schedules are possible there, so the least lost time is at most what it finds. A
//! client's timeline is lost time, answers and pauses; at equal times, less lost time is therefore more work
//! done.

use std::collections::BTreeMap;

use super::S;
use super::client::Client;
use super::machine::Scenario;
use super::tally::seconds;

/// Time between two decisions.
const STEP: u64 = S / 2;
/// Schedules that are followed at once, and those of them with the same models on the cards.
const WIDTH: usize = 24;
const ALIKE: usize = 3;
/// From a stop until the memory is free.
const LEAVES: u64 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seat {
    None,
    /// Loads once those that it takes the place of have ended.
    Awaits(usize),
    Loads(usize, u64),
    Ready(usize),
    /// Ends for this model when its answers have ended.
    Drains(usize, usize),
}

#[derive(Clone, Copy, Debug)]
enum Lane {
    Asks(u64),
    Waits(u64),
    Gets(u64),
    Done,
}

/// One schedule, up to a time.
#[derive(Clone, Debug)]
struct Play {
    seats: Vec<Seat>,
    /// When the read of each file began: files are read as soon as somebody waits for them.
    read: Vec<Option<u64>>,
    lanes: Vec<(Lane, u64)>,
    lost: u64,
}

struct Oracle<'s> {
    scenario: &'s Scenario,
}

/// The lost time of the best schedule that was found, in seconds.
pub(super) fn lost(scenario: &Scenario) -> f64 {
    let oracle = Oracle { scenario };
    let lanes = scenario.clients.iter().map(|client| (Lane::Asks(client.begins), 0)).collect();
    let count = scenario.models.len();
    let mut plays = vec![Play { seats: vec![Seat::None; count], read: vec![None; count], lanes, lost: 0 }];
    for now in (0..scenario.until).step_by(usize::try_from(STEP).unwrap()) {
        if let Some(done) = plays.iter().filter(|play| play.is_done()).map(|play| play.lost).min() {
            return seconds(done);
        }
        let mut next: Vec<Play> = plays.iter().flat_map(|play| oracle.choices(play, now)).collect();
        next.iter_mut().for_each(|play| oracle.advance(play, now, now + STEP));
        plays = oracle.best(next, now + STEP);
    }
    seconds(plays.iter().map(|play| play.lost).min().unwrap())
}

impl Play {
    fn is_done(&self) -> bool {
        self.lanes.iter().all(|(lane, _)| matches!(lane, Lane::Done))
    }
}

impl Oracle<'_> {
    fn call(&self, lane: usize, created: u64) -> (usize, u64) {
        let Client { models, session, answers, .. } = &self.scenario.clients[lane];
        let pick = |length: usize, place: u64| usize::try_from(place).unwrap() % length;
        let model = models[pick(models.len(), created / session)];
        (usize::try_from(model).unwrap(), answers[pick(answers.len(), created)])
    }

    /// Time of a load that begins now.
    fn load(&self, play: &Play, model: usize, now: u64) -> u64 {
        let kind = &self.scenario.models[model];
        kind.load + kind.cold.saturating_sub(play.read[model].map_or(0, |since| now - since))
    }

    fn in_flight(&self, play: &Play, model: usize) -> usize {
        let gets = |(lane, (place, created)): &(usize, &(Lane, u64))| {
            matches!(place, Lane::Gets(_)) && self.call(*lane, *created).0 == model
        };
        play.lanes.iter().enumerate().filter(gets).count()
    }

    fn waiting(&self, play: &Play, model: usize) -> u64 {
        let waits = |(lane, (place, created)): &(usize, &(Lane, u64))| {
            matches!(place, Lane::Waits(_)) && self.call(*lane, *created).0 == model
        };
        u64::try_from(play.lanes.iter().enumerate().filter(waits).count()).unwrap()
    }

    /// The schedule without a change, and with each load that could be begun.
    fn choices(&self, play: &Play, now: u64) -> Vec<Play> {
        let mut choices = vec![play.clone()];
        for model in (0..play.seats.len()).filter(|model| play.seats[*model] == Seat::None) {
            if self.waiting(play, model) == 0 {
                continue;
            }
            for card in 0..self.scenario.cards.len() {
                for victims in self.victims(play, model, card) {
                    let mut play = play.clone();
                    play.seats[model] = Seat::Awaits(card);
                    for victim in victims {
                        play.seats[victim] = Seat::Drains(card, model);
                    }
                    self.settle(&mut play, now);
                    choices.push(play);
                }
            }
        }
        choices
    }

    /// The smallest sets of ready models that leave enough room on the card.
    fn victims(&self, play: &Play, model: usize, card: usize) -> Vec<Vec<usize>> {
        let size = |model: usize| self.scenario.models[model].gib;
        let here = |seat: &Seat| match seat {
            Seat::None => false,
            Seat::Awaits(on) | Seat::Loads(on, _) | Seat::Ready(on) | Seat::Drains(on, _) => *on == card,
        };
        let occupied: u64 = (0..play.seats.len()).filter(|other| here(&play.seats[*other])).map(size).sum();
        // What drains makes room for a model that is counted.
        let drains = |other: &usize| matches!(play.seats[*other], Seat::Drains(on, _) if on == card);
        let leaving: u64 = (0..play.seats.len()).filter(drains).map(size).sum();
        let lacks = (occupied - leaving + size(model)).saturating_sub(self.scenario.cards[card]);
        let ready: Vec<usize> =
            (0..play.seats.len()).filter(|other| play.seats[*other] == Seat::Ready(card)).collect();
        let sets = (0_u32..1 << ready.len()).map(|bits| {
            let chosen = ready.iter().enumerate().filter(|(place, _)| bits & (1 << place) != 0);
            chosen.map(|(_, other)| *other).collect::<Vec<usize>>()
        });
        let total = |set: &[usize]| set.iter().copied().map(size).sum::<u64>();
        let is_least =
            |set: &Vec<usize>| total(set) >= lacks && set.iter().all(|one| total(set) - size(*one) < lacks);
        sets.filter(is_least).collect()
    }

    /// The time of the last answer of those that end for the model.
    fn drained(&self, play: &Play, model: usize) -> u64 {
        let ends = play.lanes.iter().enumerate().filter_map(|(lane, (place, created))| match place {
            Lane::Gets(at) => Some((*at, self.call(lane, *created).0)),
            _ => None,
        });
        let ends = ends.filter(|(_, other)| matches!(play.seats[*other], Seat::Drains(_, by) if by == model));
        ends.map(|(at, _)| at).max().unwrap_or(0)
    }

    /// Ends what has drained, and begins the loads that have room.
    fn settle(&self, play: &mut Play, now: u64) {
        for model in 0..play.seats.len() {
            let Seat::Awaits(card) = play.seats[model] else { continue };
            let drains = |other: &usize| matches!(play.seats[*other], Seat::Drains(_, by) if by == model);
            let victims: Vec<usize> = (0..play.seats.len()).filter(drains).collect();
            if victims.iter().all(|victim| self.in_flight(play, *victim) == 0) {
                let leaves = if victims.is_empty() { 0 } else { LEAVES };
                for victim in victims {
                    play.seats[victim] = Seat::None;
                    play.read[victim] = play.read[victim].filter(|_| !self.scenario.forgets);
                }
                play.seats[model] = Seat::Loads(card, now + leaves + self.load(play, model, now));
            }
        }
    }

    /// Plays on without a decision.
    fn advance(&self, play: &mut Play, mut now: u64, until: u64) {
        loop {
            self.fill(play, now);
            let loads = play.seats.iter().filter_map(|seat| match seat {
                Seat::Loads(_, at) => Some(*at),
                _ => None,
            });
            let lanes = play.lanes.iter().filter_map(|(lane, _)| match lane {
                Lane::Asks(at) | Lane::Gets(at) => Some(*at),
                Lane::Waits(_) | Lane::Done => None,
            });
            now = loads.chain(lanes).min().unwrap_or(u64::MAX).max(now);
            if now >= until {
                return;
            }
            self.happen(play, now);
        }
    }

    fn happen(&self, play: &mut Play, now: u64) {
        for seat in &mut play.seats {
            if let Seat::Loads(card, at) = *seat
                && at <= now
            {
                *seat = Seat::Ready(card);
            }
        }
        for (lane, client) in self.scenario.clients.iter().enumerate() {
            let (place, created) = &mut play.lanes[lane];
            match *place {
                Lane::Asks(at) if at <= now => {
                    *place = Lane::Waits(now);
                    play.read[self.call(lane, *created).0].get_or_insert(now);
                }
                Lane::Gets(at) if at <= now => {
                    *created += 1;
                    *place =
                        if *created == client.calls { Lane::Done } else { Lane::Asks(now + client.pause) };
                }
                _ => {}
            }
        }
        self.settle(play, now);
    }

    /// Sends what waits to the engines that are ready and have a slot, oldest first.
    fn fill(&self, play: &mut Play, now: u64) {
        for model in 0..play.seats.len() {
            if !matches!(play.seats[model], Seat::Ready(_)) {
                continue;
            }
            let free = self.scenario.models[model].slots.saturating_sub(self.in_flight(play, model));
            let waits = play.lanes.iter().enumerate().filter_map(|(lane, (place, created))| match place {
                Lane::Waits(since) if self.call(lane, *created).0 == model => Some((*since, lane)),
                _ => None,
            });
            let mut waits: Vec<(u64, usize)> = waits.collect();
            waits.sort_unstable();
            for (since, lane) in waits.into_iter().take(free) {
                play.lost += now - since;
                play.lanes[lane].0 = Lane::Gets(now + self.call(lane, play.lanes[lane].1).1);
            }
        }
    }

    /// The schedules with the least lost time so far and to come; not all of them alike.
    fn best(&self, mut plays: Vec<Play>, now: u64) -> Vec<Play> {
        plays.sort_by_cached_key(|play| self.estimate(play, now));
        let mut alike = BTreeMap::<Vec<Seat>, usize>::new();
        plays.retain(|play| {
            let count = alike.entry(play.seats.clone()).or_default();
            *count += 1;
            *count <= ALIKE
        });
        plays.truncate(WIDTH);
        plays
    }

    /// The lost time, and the loads that waiting clients and those of next calls will wait for as things are.
    fn estimate(&self, play: &Play, now: u64) -> u64 {
        let to_come = play.lanes.iter().enumerate().map(|(lane, (place, created))| {
            let (lost, next) = match place {
                Lane::Waits(since) => (now - since, *created),
                Lane::Asks(_) => (0, *created),
                Lane::Gets(_) => (0, created + 1),
                Lane::Done => return 0,
            };
            if next == self.scenario.clients[lane].calls {
                return 0;
            }
            let model = self.call(lane, next).0;
            lost + match play.seats[model] {
                Seat::Ready(_) => 0,
                Seat::Loads(_, at) => at.saturating_sub(now),
                Seat::Awaits(_) => {
                    self.drained(play, model).saturating_sub(now) + self.load(play, model, now)
                }
                Seat::None | Seat::Drains(..) => self.load(play, model, now),
            }
        });
        play.lost + to_come.sum::<u64>()
    }
}
