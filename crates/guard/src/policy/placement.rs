//! Chooses the kind of host memory for the part of a request that does not fit on the card.
//!
//! Memory of the card's own NUMA node comes first, then that of any node, then managed and pinned memory. A
//! probe tests each kind, because drivers report some features wrongly.

use crate::state::ranges::SpillPlace;

const fn bit(place: SpillPlace) -> u8 {
    match place {
        SpillPlace::Node(_) => 1,
        SpillPlace::Host => 2,
        SpillPlace::Managed => 4,
        SpillPlace::Pinned => 8,
    }
}

// DECISION: guard does not split a program's copies at the border, because drivers copy across it (580.159 on
// an H200). Where the probe finds one that refuses, the next kind of memory is used.
/// Behaviour of copies across the border between device and host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BorderCopies {
    /// There was no room for a device granule to try it with.
    Untried,
    /// The driver copies across the border.
    Whole,
}

/// Card attributes that determine which kinds of host memory are tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CardFeatures {
    /// Virtual memory management.
    pub(crate) vmm: bool,
    /// The card's NUMA node; negative for none.
    pub(crate) node: i32,
    pub(crate) concurrent_managed: bool,
}

/// Test results of a card for each kind of host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProbeResults {
    refused: u8,
    proven: Option<(SpillPlace, BorderCopies)>,
    stated: bool,
}

impl ProbeResults {
    pub(crate) const NONE: Self = Self { refused: 0, proven: None, stated: false };

    /// The places that have not been refused, best first.
    pub(crate) fn places(self, facts: CardFeatures) -> impl Iterator<Item = SpillPlace> {
        let all = [
            // HOST_NUMA_ID is -1 where the card has no node of its own.
            (facts.vmm && facts.node >= 0, SpillPlace::Node(facts.node)),
            (facts.vmm, SpillPlace::Host),
            (facts.concurrent_managed, SpillPlace::Managed),
            (true, SpillPlace::Pinned),
        ];
        all.into_iter()
            .filter(move |(has, place)| *has && self.refused & bit(*place) == 0)
            .map(|(_, place)| place)
    }

    /// The result for `place`, if it was probed.
    pub(crate) fn proven(self, place: SpillPlace) -> Option<BorderCopies> {
        let (proven, crossing) = self.proven?;
        (proven == place).then_some(crossing)
    }

    pub(crate) fn prove(&mut self, place: SpillPlace, crossing: BorderCopies) {
        self.proven = Some((place, crossing));
    }

    /// Excludes a place on this card for good.
    pub(crate) fn refuse(&mut self, place: SpillPlace) {
        self.refused |= bit(place);
        if self.proven.is_some_and(|(proven, _)| proven == place) {
            self.proven = None;
        }
    }

    /// True at the first call: the choice is reported once.
    pub(crate) fn say_once(&mut self) -> bool {
        !core::mem::replace(&mut self.stated, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: CardFeatures = CardFeatures { vmm: true, node: 1, concurrent_managed: true };

    fn places(verdicts: ProbeResults, facts: CardFeatures) -> Vec<SpillPlace> {
        verdicts.places(facts).collect()
    }

    #[test]
    fn the_nearest_memory_comes_first_and_each_refusal_leads_to_the_next() {
        let mut verdicts = ProbeResults::NONE;
        let order = [SpillPlace::Node(1), SpillPlace::Host, SpillPlace::Managed, SpillPlace::Pinned];
        for (refusals, place) in order.into_iter().enumerate() {
            assert_eq!(places(verdicts, EVERYTHING), order[refusals..]);
            verdicts.refuse(place);
        }
        assert_eq!(places(verdicts, EVERYTHING), []);
    }

    #[test]
    fn a_card_is_asked_only_for_what_it_can_have() {
        let facts = |vmm, node, concurrent_managed| CardFeatures { vmm, node, concurrent_managed };
        let first = |facts| places(ProbeResults::NONE, facts);
        assert_eq!(first(facts(true, -1, false)), [SpillPlace::Host, SpillPlace::Pinned]);
        assert_eq!(first(facts(false, 0, true)), [SpillPlace::Managed, SpillPlace::Pinned]);
        assert_eq!(first(facts(false, 0, false)), [SpillPlace::Pinned]);
    }

    #[test]
    fn a_verdict_is_kept_until_the_place_is_refused() {
        let mut verdicts = ProbeResults::NONE;
        verdicts.prove(SpillPlace::Host, BorderCopies::Whole);
        assert_eq!(verdicts.proven(SpillPlace::Host), Some(BorderCopies::Whole));
        assert_eq!(verdicts.proven(SpillPlace::Node(0)), None);
        verdicts.refuse(SpillPlace::Host);
        assert_eq!(verdicts.proven(SpillPlace::Host), None);
        assert!(verdicts.say_once() && !verdicts.say_once());
    }
}
