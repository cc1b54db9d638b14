//! Where the part that does not fit may lie, best place first, and what is known of each card's places.
//!
//! Host memory of the card's own NUMA node is nearest; host memory of any node needs a younger driver but no node; both can
//! be the tail of a range whose head is on the card. Managed memory and pinned memory cannot, and take the whole of a request:
//! managed memory only where the driver need not stop the host for it (concurrentManagedAccess), because without that it
//! cannot be larger than the card either. What a driver says of itself is not believed (its attributes came later than the
//! features): a place counts once a probe has passed, and the probe's verdict is kept per card.

/// Where spilled bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Host memory of this NUMA node, mapped behind the device part.
    Node(i32),
    /// Host memory of any node, mapped likewise.
    Host,
    /// Managed memory that prefers the host.
    Managed,
    /// Page-locked host memory.
    Pinned,
}

impl Place {
    /// Whether device memory can stand before it in one range.
    pub(crate) const fn follows_device_memory(self) -> bool {
        matches!(self, Self::Node(_) | Self::Host)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Node(_) => 1,
            Self::Host => 2,
            Self::Managed => 4,
            Self::Pinned => 8,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Node(_) => "host memory of the card's NUMA node",
            Self::Host => "host memory",
            Self::Managed => "managed memory that prefers the host",
            Self::Pinned => "pinned host memory",
        }
    }
}

/// Whether a copy may cross the border between device and host part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    /// There was no room for a device granule to try it with.
    Untried,
    Whole,
    /// The driver refuses: copies are cut there.
    Cut,
}

/// What the driver says of a card, as far as it decides where to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Virtual memory management.
    pub(crate) vmm: bool,
    /// The card's NUMA node; negative for none.
    pub(crate) node: i32,
    pub(crate) concurrent_managed: bool,
}

/// What was learnt of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdicts {
    refused: u8,
    proven: Option<(Place, Crossing)>,
    said: bool,
}

impl Verdicts {
    pub(crate) const NONE: Self = Self {
        refused: 0,
        proven: None,
        said: false,
    };

    /// The places still worth a try, best first.
    pub(crate) fn places(self, facts: Facts) -> impl Iterator<Item = Place> {
        let all = [
            (facts.vmm && facts.node >= 0, Place::Node(facts.node)),
            (facts.vmm, Place::Host),
            (facts.concurrent_managed, Place::Managed),
            (true, Place::Pinned),
        ];
        all.into_iter()
            .filter(move |(has, place)| *has && self.refused & place.bit() == 0)
            .map(|(_, place)| place)
    }

    /// The verdict on `place`, if it was probed.
    pub(crate) fn proven(self, place: Place) -> Option<Crossing> {
        let (proven, crossing) = self.proven?;
        (proven == place).then_some(crossing)
    }

    pub(crate) fn prove(&mut self, place: Place, crossing: Crossing) {
        self.proven = Some((place, crossing));
    }

    /// The driver will not have it on this card, ever.
    pub(crate) fn refuse(&mut self, place: Place) {
        self.refused |= place.bit();
        if self.proven.is_some_and(|(proven, _)| proven == place) {
            self.proven = None;
        }
    }

    /// Whether this is the first time that the choice is to be said.
    pub(crate) fn say_once(&mut self) -> bool {
        !core::mem::replace(&mut self.said, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Facts = Facts {
        vmm: true,
        node: 1,
        concurrent_managed: true,
    };

    fn places(verdicts: Verdicts, facts: Facts) -> Vec<Place> {
        verdicts.places(facts).collect()
    }

    #[test]
    fn the_nearest_memory_comes_first_and_each_refusal_leads_to_the_next() {
        let mut verdicts = Verdicts::NONE;
        let order = [Place::Node(1), Place::Host, Place::Managed, Place::Pinned];
        for (refusals, place) in order.into_iter().enumerate() {
            assert_eq!(places(verdicts, EVERYTHING), order[refusals..]);
            verdicts.refuse(place);
        }
        assert_eq!(places(verdicts, EVERYTHING), []);
    }

    #[test]
    fn a_card_is_asked_only_for_what_it_can_have() {
        let facts = |vmm, node, concurrent_managed| Facts {
            vmm,
            node,
            concurrent_managed,
        };
        let first = |facts| places(Verdicts::NONE, facts);
        assert_eq!(first(facts(true, -1, false)), [Place::Host, Place::Pinned]);
        assert_eq!(first(facts(false, 0, true)), [Place::Managed, Place::Pinned]);
        assert_eq!(first(facts(false, 0, false)), [Place::Pinned]);
    }

    #[test]
    fn a_verdict_is_kept_until_the_place_is_refused() {
        let mut verdicts = Verdicts::NONE;
        verdicts.prove(Place::Host, Crossing::Cut);
        assert_eq!(verdicts.proven(Place::Host), Some(Crossing::Cut));
        assert_eq!(verdicts.proven(Place::Node(0)), None);
        verdicts.refuse(Place::Host);
        assert_eq!(verdicts.proven(Place::Host), None);
        assert!(verdicts.say_once() && !verdicts.say_once());
    }
}
