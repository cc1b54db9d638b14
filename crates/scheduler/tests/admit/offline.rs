//! Computes schedules for four models that know all requests beforehand, as an upper bound for any scheduler.

use std::collections::{BTreeSet, HashMap};

use crate::runner::admit::four::{CLIENTS, RUN, Times};

/// The smallest model fits beside the largest (set 0), and beside the two others (set 1).
const SETS: [&[usize]; 2] = [&[3], &[1, 2]];

pub(crate) struct Offline {
    times: Times,
    /// Models that each client asks for, one after the other.
    requests: Vec<Vec<usize>>,
}

/// Each client's next request, and the time at which it can be sent.
type Clients = [(usize, u64); CLIENTS];

/// A schedule until the end of a phase.
#[derive(Clone, Debug)]
struct Partial {
    now: u64,
    answers: u64,
    /// The set that is loaded.
    set: Option<usize>,
    clients: Clients,
    /// The longest wait, also of those that have not ended.
    longest: u64,
}

const BEGIN: Partial = Partial { now: 0, answers: 0, set: None, clients: [(0, 0); CLIENTS], longest: 0 };

impl Offline {
    pub(crate) fn new(times: Times, requests: Vec<Vec<u32>>) -> Self {
        let index = |all: Vec<u32>| all.into_iter().map(|model| usize::try_from(model).unwrap()).collect();
        Self { times, requests: requests.into_iter().map(index).collect() }
    }

    /// Answers of the schedule that changes the set only when no client can go on.
    pub(crate) fn piled(&self) -> u64 {
        let from = |first: usize| {
            let mut partial = BEGIN;
            for phase in first.. {
                let ends = self.ends(&partial, phase % 2);
                let last = ends.iter().flatten().copied().max().unwrap_or(RUN);
                partial = self.cut(&partial, phase % 2, &ends, last);
                if partial.now >= RUN {
                    break;
                }
            }
            partial.answers
        };
        from(0).max(from(1))
    }

    /// Answers of the best schedule that a beam search of this width finds. Each phase may end with any
    /// answer.
    pub(crate) fn best(&self, width: usize) -> u64 {
        self.best_within(width, RUN)
    }

    /// The same among the schedules that let nobody wait for longer than this; zero if none is found.
    pub(crate) fn best_within(&self, width: usize, longest: u64) -> u64 {
        let mut beam = vec![BEGIN];
        let mut best = 0;
        while !beam.is_empty() {
            let mut next: HashMap<(u64, Option<usize>, Clients), Partial> = HashMap::new();
            for partial in &beam {
                for set in (0..2).filter(|set| partial.set != Some(*set)) {
                    let ends = self.ends(partial, set);
                    let loaded = self.loaded(partial, set);
                    let later = ends.iter().flatten().copied().filter(|at| *at >= loaded);
                    for at in later.collect::<BTreeSet<u64>>() {
                        let cut = self.cut(partial, set, &ends, at);
                        if cut.longest > longest {
                            break;
                        }
                        if cut.now >= RUN || longest == RUN {
                            best = best.max(cut.answers);
                        }
                        let key = (cut.now, cut.set, cut.clients);
                        if cut.now < RUN && next.get(&key).is_none_or(|other| other.answers < cut.answers) {
                            next.insert(key, cut);
                        }
                    }
                }
            }
            beam = next.into_values().collect();
            beam.sort_unstable_by_key(|partial| (std::cmp::Reverse(self.promise(partial)), partial.clients));
            beam.truncate(width);
        }
        best
    }

    /// Answers so far, less those that a usual schedule has by then, in thousandths.
    fn promise(&self, partial: &Partial) -> i64 {
        let cycle = 2 * self.times.stop + self.times.load(3) + self.times.load(2) + 1600;
        let usual = partial.now * 48_000 / cycle;
        i64::try_from(partial.answers * 1000).unwrap() - i64::try_from(usual).unwrap()
    }

    /// The time at which the first model of this set is loaded.
    fn loaded(&self, partial: &Partial, set: usize) -> u64 {
        let stop = if partial.set.is_some() { self.times.stop } else { 0 };
        let quickest = SETS[set].iter().map(|model| self.times.load(*model)).min();
        partial.now + stop + quickest.unwrap_or_default()
    }

    /// The ends of each client's answers, if this set is loaded from now on and stays.
    fn ends(&self, partial: &Partial, set: usize) -> Vec<Vec<u64>> {
        let stop = if partial.set.is_some() { self.times.stop } else { 0 };
        let ready = |model: usize| match model {
            0 => Some(partial.now),
            model => SETS[set].contains(&model).then(|| partial.now + stop + self.times.load(model)),
        };
        let of = |(client, (nth, free)): (usize, &(usize, u64))| {
            let mut at = *free;
            let answered = self.requests[client][*nth..].iter().map_while(|model| {
                at = at.max(ready(*model)?) + self.times.answers(*model) + 1;
                Some(at)
            });
            answered.collect()
        };
        partial.clients.iter().enumerate().map(of).collect()
    }

    /// The phase ends at this time; requests that are not answered by then are asked again in a later one.
    fn cut(&self, partial: &Partial, set: usize, ends: &[Vec<u64>], at: u64) -> Partial {
        let mut cut = Partial { now: at, set: Some(set), ..partial.clone() };
        for ((nth, free), ends) in cut.clients.iter_mut().zip(ends) {
            let answered = ends.iter().take_while(|end| **end <= at).count();
            *nth += answered;
            *free = answered.checked_sub(1).map_or(*free, |last| ends[last]);
            let in_time = ends[..answered].iter().filter(|end| **end <= RUN).count();
            cut.answers += u64::try_from(in_time).unwrap();
        }
        cut.longest = cut.longest.max(self.longest(partial, ends, at.min(RUN)));
        cut
    }

    /// The longest wait in a phase, until this time.
    fn longest(&self, partial: &Partial, ends: &[Vec<u64>], until: u64) -> u64 {
        let of = |(client, (nth, free)): (usize, &(usize, u64))| {
            let models = self.requests[client][*nth..].iter();
            let (mut longest, mut asked) = (0, *free);
            for (model, end) in models.zip(&ends[client]) {
                let sent = end - self.times.answers(*model) - 1;
                longest = longest.max(sent.min(until).saturating_sub(asked));
                asked = *end;
            }
            longest.max(until.saturating_sub(asked))
        };
        partial.clients.iter().enumerate().map(of).max().unwrap_or_default()
    }
}
