//! Stable sort of slices, whose machine code is shared by all element types to keep the program small.
//!
//! DECISION: the sort orders indices of elements instead of elements. The standard library's sort is compiled
//! anew for each type of element and each comparison, into 6 KB each time. Eighty copies were 3 % of the
//! program. A sort of indices, with the comparison behind a pointer, is compiled once. It takes 8 bytes and
//! one swap for each element.

use core::cmp::Ordering;

/// A stable sort in O(n log n) comparisons.
pub trait Order<T> {
    fn order_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// `key` is asked for both elements of every comparison.
    fn order_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.order_by(|one, other| key(one).cmp(&key(other)));
    }

    /// `key` is asked for each element once.
    fn order_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);

    fn order(&mut self)
    where
        T: Ord,
    {
        self.order_by(T::cmp);
    }
}

impl<T> Order<T> for [T] {
    fn order_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut order = sorted(self.len(), &mut |one, other| compare(&self[one], &self[other]));
        rearrange(&mut order, &mut |one, other| self.swap(one, other));
    }

    fn order_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        let keys: Vec<K> = self.iter().map(key).collect();
        let mut order = sorted(keys.len(), &mut |one, other| keys[one].cmp(&keys[other]));
        rearrange(&mut order, &mut |one, other| self.swap(one, other));
    }
}

/// The numbers below `length`, sorted.
#[inline(never)]
fn sorted(length: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..length).collect();
    order.sort_by(|one, other| compare(*one, *other));
    order
}

/// Swaps until the element that stood at `order[i]` stands at `i`, along each cycle of the permutation.
#[inline(never)]
fn rearrange(order: &mut [usize], swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..order.len() {
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut order[at], at);
            if from == start {
                break;
            }
            swap(at, from);
            at = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_sorts_as_the_standard_library_does(keys in proptest::collection::vec(0_u8..20, 0..200)) {
            let rows: Vec<(u8, usize)> = keys.into_iter().zip(0..).collect();
            let (mut ours, mut expected, mut sorted_rows) = (rows.clone(), rows.clone(), rows);
            sorted_rows.sort();
            ours.order_by_key(|row| row.0);
            expected.sort_by_key(|row| row.0);
            prop_assert_eq!(&ours, &expected);
            ours.order_by(|one, other| other.cmp(one));
            expected.sort_by(|one, other| other.cmp(one));
            prop_assert_eq!(&ours, &expected);
            ours.order_by_cached_key(|row| row.0);
            expected.sort_by_cached_key(|row| row.0);
            prop_assert_eq!(&ours, &expected);
            ours.order();
            prop_assert_eq!(ours, sorted_rows);
        }
    }

    #[test]
    fn elements_that_own_memory_are_moved_and_none_is_lost() {
        let mut words: Vec<String> = "the load line of the ship".split(' ').map(str::to_owned).collect();
        words.order();
        assert_eq!(words, ["line", "load", "of", "ship", "the", "the"]);
        words[..3].order_by_key(String::len);
        assert_eq!(words, ["of", "line", "load", "ship", "the", "the"]);
        Vec::<String>::new().order();
    }
}
