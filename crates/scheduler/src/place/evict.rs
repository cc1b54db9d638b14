//! Choice of engines to evict: the smallest set whose claims (allowed memory) cover the missing memory.

use plimsoll_base::{Bytes, RunId};

/// A run that could stop, and the memory that this would free on each card that lacks memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EvictionCandidate {
    pub(crate) run: RunId,
    /// Freed bytes in the order of the deficits.
    pub(crate) frees: Vec<Bytes>,
}

/// Sets examined before the search settles for a sufficient one.
const EXACT_SETS: usize = 2_000;

/// Returns the victims in the order of `candidates`, or None if all of them together do not suffice.
pub(crate) fn smallest(deficits: &[Bytes], candidates: &[EvictionCandidate]) -> Option<Vec<RunId>> {
    // Among sets of the same size, the first in the candidates' order is chosen. With many candidates, they
    // are taken in order until they suffice.

    // A run that frees nothing on these cards would only make the search longer.
    let useful: Vec<&EvictionCandidate> =
        candidates.iter().filter(|c| c.frees.iter().any(|f| !f.is_zero())).collect();
    if !covers(deficits, &useful) {
        return None;
    }
    // The number of sets is exponential; the budget keeps one search below a millisecond.
    let mut budget = EXACT_SETS;
    for size in fewest(deficits, &useful)..useful.len() {
        let mut chosen = Vec::with_capacity(size);
        match first_of_size(size, deficits, &useful, &mut chosen, &mut budget) {
            SetSearch::Found => return Some(chosen.iter().map(|c| c.run).collect()),
            SetSearch::None => {}
            SetSearch::GaveUp => return Some(pruned(deficits, &useful)),
        }
    }
    Some(useful.iter().map(|c| c.run).collect())
}

fn covers(deficits: &[Bytes], chosen: &[&EvictionCandidate]) -> bool {
    let freed = |i: usize| chosen.iter().filter_map(|c| c.frees.get(i)).copied().sum::<Bytes>();
    deficits.iter().enumerate().all(|(i, deficit)| freed(i) >= *deficit)
}

/// A lower bound of the set's size: on some card even the largest runs, one fewer, free too little.
fn fewest(deficits: &[Bytes], useful: &[&EvictionCandidate]) -> usize {
    let on_card = |(i, deficit): (usize, &Bytes)| {
        let mut frees: Vec<Bytes> = useful.iter().filter_map(|c| c.frees.get(i)).copied().collect();
        // The largest runs first give the lower bound for this card.
        frees.sort_unstable_by(|a, b| b.cmp(a));
        let mut rest = *deficit;
        let largest = frees.iter().take_while(|freed| {
            let lacking = !rest.is_zero();
            rest = rest.saturating_sub(**freed);
            lacking
        });
        largest.count()
    };
    deficits.iter().enumerate().map(on_card).max().unwrap_or(0)
}

enum SetSearch {
    Found,
    None,
    GaveUp,
}

fn first_of_size<'a>(
    size: usize,
    deficits: &[Bytes],
    rest: &[&'a EvictionCandidate],
    chosen: &mut Vec<&'a EvictionCandidate>,
    budget: &mut usize,
) -> SetSearch {
    if size == 0 {
        if *budget == 0 {
            return SetSearch::GaveUp;
        }
        *budget -= 1;
        return if covers(deficits, chosen) { SetSearch::Found } else { SetSearch::None };
    }
    for first in 0..rest.len().saturating_sub(size - 1) {
        chosen.push(rest[first]);
        match first_of_size(size - 1, deficits, &rest[first + 1..], chosen, budget) {
            SetSearch::None => {}
            end => return end,
        }
        chosen.pop();
    }
    SetSearch::None
}

fn pruned(deficits: &[Bytes], useful: &[&EvictionCandidate]) -> Vec<RunId> {
    let enough = (1..=useful.len()).find(|n| covers(deficits, &useful[..*n])).unwrap_or(useful.len());
    let mut chosen = useful[..enough].to_vec();
    // From the most recently used back, so that the least recently used remain.
    for i in (0..chosen.len()).rev() {
        let without = chosen.remove(i);
        if !covers(deficits, &chosen) {
            chosen.insert(i, without);
        }
    }
    chosen.iter().map(|c| c.run).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(frees: &[&[u64]]) -> Vec<EvictionCandidate> {
        let one = |(run, frees): (usize, &&[u64])| EvictionCandidate {
            run: RunId(u64::try_from(run).unwrap()),
            frees: frees.iter().map(|n| Bytes::new(*n)).collect(),
        };
        frees.iter().enumerate().map(one).collect()
    }

    fn smallest_of(deficits: &[u64], frees: &[&[u64]]) -> Option<Vec<u64>> {
        let deficits: Vec<Bytes> = deficits.iter().map(|n| Bytes::new(*n)).collect();
        smallest(&deficits, &candidates(frees)).map(|set| set.iter().map(|run| run.0).collect())
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
