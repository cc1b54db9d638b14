//! Chooses the engines to stop: the cheapest set whose granted memory covers what is missing.

use plimsoll_base::{Bytes, RunId};

/// A run that could stop, and the memory that this would free on each card that lacks memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EvictionCandidate<F = Vec<Bytes>> {
    pub(crate) run: RunId,
    /// Freed bytes in the order of the deficits.
    pub(crate) frees: F,
    /// Cost of stopping it, such as the time of its next load. It counts as 1 at least.
    pub(crate) cost: u64,
    /// Cost of the wait until it can stop. Of a set the longest counts.
    pub(crate) wait: u64,
}

/// Steps of one search before it settles for the best set so far. They keep a search below a tenth of a
/// millisecond.
const STEPS: usize = 500;

/// Returns the victims in the order of `candidates`, or None if all of them together do not suffice.
///
/// Among sets of the same cost, the smallest is chosen, and of these the first in the candidates' order.
pub(crate) fn cheapest<F: AsRef<[Bytes]>>(
    deficits: &[Bytes],
    candidates: &[EvictionCandidate<F>],
) -> Option<Vec<RunId>> {
    // A run that frees nothing on these cards would only make the search longer.
    let is_useful = |c: &&EvictionCandidate<F>| c.frees.as_ref().iter().any(|f| !f.is_zero());
    let useful = || candidates.iter().filter(is_useful);
    if !covers(deficits, useful()) {
        return None;
    }
    // Where each suffices alone, as with models of one size, no set of several is cheaper.
    if !covers::<F, _>(deficits, []) && useful().all(|candidate| covers(deficits, [candidate])) {
        let first = useful().min_by_key(|candidate| cost(&[*candidate]));
        return first.map(|candidate| vec![candidate.run]);
    }
    let useful: Vec<&EvictionCandidate<F>> = useful().collect();
    // A cheap set to begin with leaves little to search.
    let mut by_cost = useful.clone();
    by_cost.sort_by_key(|candidate| candidate.cost.saturating_add(candidate.wait));
    let alone = by_cost.iter().find(|candidate| covers(deficits, [**candidate])).map(|alone| vec![*alone]);
    let seeds = [Some(pruned(deficits, &useful)), Some(pruned(deficits, &by_cost)), alone];
    let first = seeds.into_iter().flatten().min_by_key(|set| cost(set)).unwrap_or_default();
    let (bound, size) = cost(&first);
    // The search finds the first of several sets of this cost and size, which need not be this one.
    let mut search = VictimSearch { deficits, best_cost: (bound, size + 1), best: first, steps: STEPS };
    search.extend(&useful, &mut Vec::new(), (0, 0));
    // A search that gave up may have ended at a set with a needless run.
    Some(pruned(deficits, &search.best).iter().map(|c| c.run).collect())
}

fn covers<'a, F, I>(deficits: &[Bytes], chosen: I) -> bool
where
    F: AsRef<[Bytes]> + 'a,
    I: IntoIterator<Item = &'a EvictionCandidate<F>, IntoIter: Clone>,
{
    let chosen = chosen.into_iter();
    let freed = |i: usize| chosen.clone().filter_map(|c| c.frees.as_ref().get(i)).copied().sum::<Bytes>();
    deficits.iter().enumerate().all(|(i, deficit)| freed(i) >= *deficit)
}

/// Cost of a set, and its size among sets of one cost.
fn cost<F>(chosen: &[&EvictionCandidate<F>]) -> (u64, usize) {
    let wait = chosen.iter().map(|c| c.wait).max().unwrap_or(0);
    (chosen.iter().fold(wait, |sum, c| sum.saturating_add(c.cost.max(1))), chosen.len())
}

/// A set that suffices and contains no needless run. It is near the cheapest where the exact search gives up.
fn pruned<'a, F: AsRef<[Bytes]>>(
    deficits: &[Bytes],
    useful: &[&'a EvictionCandidate<F>],
) -> Vec<&'a EvictionCandidate<F>> {
    let is_enough = |n: &usize| covers(deficits, useful[..*n].iter().copied());
    let enough = (1..=useful.len()).find(is_enough).unwrap_or(useful.len());
    let mut chosen = useful[..enough].to_vec();
    // From the most recently used back, so that the least recently used remain.
    for i in (0..chosen.len()).rev() {
        let without = chosen.remove(i);
        if !covers(deficits, chosen.iter().copied()) {
            chosen.insert(i, without);
        }
    }
    chosen
}

/// Search through all sets, in the candidates' order, that leaves out what cannot be cheaper.
struct VictimSearch<'a, F> {
    deficits: &'a [Bytes],
    best: Vec<&'a EvictionCandidate<F>>,
    best_cost: (u64, usize),
    steps: usize,
}

impl<'a, F: AsRef<[Bytes]>> VictimSearch<'a, F> {
    /// Adds to a set with these costs: their sum, and the longest wait.
    fn extend(
        &mut self,
        rest: &[&'a EvictionCandidate<F>],
        chosen: &mut Vec<&'a EvictionCandidate<F>>,
        (sum, wait): (u64, u64),
    ) {
        if self.steps == 0 {
            return;
        }
        self.steps -= 1;
        if covers(self.deficits, chosen.iter().copied()) {
            // The first of equals in the candidates' order stays: sets are visited in that order.
            let cost = (sum.saturating_add(wait), chosen.len());
            if cost < self.best_cost {
                (self.best_cost, self.best) = (cost, chosen.clone());
            }
            return;
        }
        for (i, next) in rest.iter().enumerate() {
            let (sum, wait) = (sum.saturating_add(next.cost.max(1)), wait.max(next.wait));
            if (sum.saturating_add(wait), chosen.len() + 1) < self.best_cost {
                chosen.push(*next);
                self.extend(&rest[i + 1..], chosen, (sum, wait));
                chosen.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(frees: &[&[u64]]) -> Vec<EvictionCandidate> {
        let one = |(run, frees): (usize, &&[u64])| EvictionCandidate {
            run: RunId(u64::try_from(run).unwrap()),
            frees: frees.iter().map(|n| Bytes::new(*n)).collect(),
            cost: 1,
            wait: 0,
        };
        frees.iter().enumerate().map(one).collect()
    }

    fn smallest_of(deficits: &[u64], frees: &[&[u64]]) -> Option<Vec<u64>> {
        let deficits: Vec<Bytes> = deficits.iter().map(|n| Bytes::new(*n)).collect();
        cheapest(&deficits, &candidates(frees)).map(|set| set.iter().map(|run| run.0).collect())
    }

    #[test]
    fn no_run_stops_where_nothing_is_missing() {
        assert_eq!(smallest_of(&[0], &[&[5]]), Some(vec![]));
        assert_eq!(smallest_of(&[], &[]), Some(vec![]));
    }

    #[test]
    fn the_least_recently_used_run_stops_where_any_would_do() {
        assert_eq!(smallest_of(&[5], &[&[5], &[5], &[9]]), Some(vec![0]));
    }

    #[test]
    fn one_victim_is_better_than_two_older_ones() {
        assert_eq!(smallest_of(&[8], &[&[4], &[4], &[8]]), Some(vec![2]));
    }

    #[test]
    fn the_cheapest_set_stops_whatever_its_size_and_age() {
        let set = |costs: &[u64]| {
            let mut candidates = candidates(&[&[4], &[4], &[8]]);
            candidates.iter_mut().zip(costs).for_each(|(candidate, cost)| candidate.cost = *cost);
            cheapest(&[Bytes::new(8)], &candidates).unwrap().iter().map(|run| run.0).collect::<Vec<_>>()
        };
        assert_eq!(set(&[10, 10, 19]), [2]);
        assert_eq!(set(&[10, 10, 20]), [2], "of one cost the smaller set");
        assert_eq!(set(&[10, 10, 21]), [0, 1]);
        assert_eq!(set(&[u64::MAX, u64::MAX, u64::MAX]), [2]);
        assert_eq!(set(&[0, 0, 0]), [2], "stopping is never free");
    }

    #[test]
    fn the_longest_wait_of_a_set_counts_once() {
        let set = |waits: &[u64]| {
            let mut candidates = candidates(&[&[4], &[4], &[8]]);
            candidates.iter_mut().zip(waits).for_each(|(candidate, wait)| candidate.wait = *wait);
            cheapest(&[Bytes::new(8)], &candidates).unwrap().iter().map(|run| run.0).collect::<Vec<_>>()
        };
        assert_eq!(set(&[10, 10, 11]), [2]);
        assert_eq!(set(&[10, 10, 12]), [0, 1]);
    }

    #[test]
    fn every_card_that_lacks_something_is_covered() {
        assert_eq!(smallest_of(&[3, 3], &[&[9, 0], &[0, 2], &[0, 3]]), Some(vec![0, 2]));
        assert_eq!(smallest_of(&[3, 3], &[&[9, 0], &[0, 2]]), None);
    }

    #[test]
    fn a_run_that_frees_nothing_there_is_no_victim() {
        assert_eq!(smallest_of(&[3], &[&[0], &[3]]), Some(vec![1]));
    }

    proptest! {
        #[test]
        fn victims_suffice_and_none_of_them_is_needless(
            deficits in prop::collection::vec(0_u64..50, 1..3),
            frees in prop::collection::vec(prop::collection::vec(0_u64..20, 2), 0..24),
        ) {
            let frees: Vec<&[u64]> = frees.iter().map(Vec::as_slice).collect();
            let freed = |set: &[u64], card: usize| -> u64 {
                set.iter().map(|run| frees[usize::try_from(*run).unwrap()][card]).sum()
            };
            let enough = |set: &[u64]| deficits.iter().enumerate().all(|(card, d)| freed(set, card) >= *d);
            let all: Vec<u64> = (0..frees.len() as u64).collect();
            match smallest_of(&deficits, &frees) {
                None => prop_assert!(!enough(&all)),
                Some(set) => {
                    prop_assert!(enough(&set));
                    for skipped in &set {
                        let fewer: Vec<u64> = set.iter().copied().filter(|run| run != skipped).collect();
                        prop_assert!(!enough(&fewer), "{set:?} needs no {skipped}");
                    }
                }
            }
        }
    }
}
