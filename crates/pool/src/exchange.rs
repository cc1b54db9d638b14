//! Chooses which parts of KV cache and weights change places between card and host memory, as conversations
//! grow and end.
//!
//! The card is to have every used position of a cache, then as much of the weights as possible, and last the
//! positions that nothing uses yet. Each step is a pair: one granule leaves the card, another one takes its
//! place.

use alloc::vec::Vec;
use core::cmp::Reverse;

use plimsoll_wire::cache::CacheLayout;

/// A granule of the cache or of the weights, by its number from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    Cache(usize),
    Weights(usize),
}

/// A granule that leaves the card, and the one that comes in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub leaves: Granule,
    pub comes: Granule,
}

/// Part of a granule: positions of one stream from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    granule: usize,
    stream: usize,
    first: u64,
}

/// The positions in each granule of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheParts {
    parts: Vec<Part>,
    granules: usize,
}

/// Which granules are on the card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residence {
    pub cache: Vec<bool>,
    pub weights: Vec<bool>,
}

impl CacheParts {
    /// The parts of a cache in granules of so many bytes; `None` for a cache of more granules than memory
    /// has.
    pub fn new(layout: &CacheLayout, granule: u64) -> Option<Self> {
        let granule = granule.max(1);
        let mut parts = Vec::new();
        for rows in layout.rows().filter(|rows| rows.size > 0) {
            let stream = usize::try_from(rows.stream).ok()?;
            // A cache without positions is used as a whole; padding behind the last position is not.
            let used = if rows.row == 0 { rows.size } else { rows.row * u64::from(layout.positions()) };
            for number in rows.start / granule..(rows.start + used).div_ceil(granule) {
                let inside = (number * granule).saturating_sub(rows.start);
                let first = inside.checked_div(rows.row).unwrap_or(0);
                parts.push(Part { granule: usize::try_from(number).ok()?, stream, first });
            }
        }
        parts.sort_unstable_by_key(|part| part.granule);
        Some(Self { parts, granules: usize::try_from(layout.size().div_ceil(granule)).ok()? })
    }

    /// Granules of the cache.
    pub const fn granules(&self) -> usize {
        self.granules
    }

    /// The pairs that bring the card from `residence` to the need of these depths, in the order of their
    /// worth. A depth is the number of positions that a stream uses; one that is not given is 0.
    pub fn pairs(&self, depths: &[u32], residence: &Residence) -> Vec<Pair> {
        let uses = self.uses(depths);
        let on_card = |number: usize| residence.cache.get(number).copied().unwrap_or(false);
        let numbers = || (0..self.granules).zip(uses.iter().copied());
        let mut wanted: Vec<_> = numbers().filter(|(at, of)| of.is_used() && !on_card(*at)).collect();
        if wanted.is_empty() && residence.weights.iter().all(|on_card| *on_card) {
            return Vec::new();
        }
        wanted.sort_unstable_by_key(|(at, of)| (of.first, *at));
        let mut unused: Vec<_> = numbers().filter(|(at, of)| !of.is_used() && on_card(*at)).collect();
        unused.sort_unstable_by_key(|(at, of)| Reverse((of.beyond, *at)));
        let weights = |wanted: bool| {
            let numbered = residence.weights.iter().enumerate();
            numbered.filter(move |(_, on_card)| **on_card == wanted).map(|(at, _)| Granule::Weights(at))
        };
        let mut unused = unused.into_iter().map(|(at, _)| Granule::Cache(at));
        // The last layers leave first, and come back last.
        let mut last = weights(true).rev();
        let mut pairs = Vec::new();
        for comes in wanted.into_iter().map(|(at, _)| Granule::Cache(at)) {
            let Some(leaves) = unused.next().or_else(|| last.next()) else { return pairs };
            pairs.push(Pair { leaves, comes });
        }
        pairs.extend(unused.zip(weights(false)).map(|(leaves, comes)| Pair { leaves, comes }));
        pairs
    }

    /// How each granule is used at these depths.
    fn uses(&self, depths: &[u32]) -> Vec<Use> {
        let mut uses = alloc::vec![Use { first: u64::MAX, beyond: u64::MAX }; self.granules];
        for part in &self.parts {
            let depth = depths.get(part.stream).copied().map_or(0, u64::from);
            // Tensors without positions begin at 0, and are used even by an empty conversation.
            let beyond = if part.first == 0 { 0 } else { (part.first + 1).saturating_sub(depth) };
            if let Some(of) = uses.get_mut(part.granule) {
                of.first = of.first.min(part.first);
                of.beyond = of.beyond.min(beyond);
            }
        }
        uses
    }
}

/// Use of a granule at given depths.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// The first position in it.
    first: u64,
    /// Positions that a stream has to grow until it uses the granule; 0 for one in use.
    beyond: u64,
}

impl Use {
    const fn is_used(self) -> bool {
        self.beyond == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GRANULE: u64 = 2 * MIB;

    /// K and V of two layers, 1024 positions a granule, four granules a tensor.
    fn small() -> CacheParts {
        CacheParts::new(&CacheLayout::read("1:4096:2x2048/8388608,2048/8388608").unwrap(), GRANULE).unwrap()
    }

    fn at(cache: &[usize], all: usize, weights: &[usize], of: usize) -> Residence {
        let has = |numbers: &[usize], count| (0..count).map(|number| numbers.contains(&number)).collect();
        Residence { cache: has(cache, all), weights: has(weights, of) }
    }

    fn after(mut residence: Residence, pairs: &[Pair]) -> Residence {
        for pair in pairs {
            for (granule, to) in [(pair.leaves, false), (pair.comes, true)] {
                let place = match granule {
                    Granule::Cache(at) => &mut residence.cache[at],
                    Granule::Weights(at) => &mut residence.weights[at],
                };
                assert_ne!(*place, to, "{granule:?} is where it should go");
                *place = to;
            }
        }
        residence
    }

    #[test]
    fn weights_leave_from_the_end_for_used_positions() {
        let heads = at(&[0, 4, 8, 12], 16, &[0, 1, 2, 3, 4], 5);
        assert_eq!(small().pairs(&[1024], &heads), []);
        let pairs = small().pairs(&[1025], &heads);
        let leaves: Vec<_> = pairs.iter().map(|pair| pair.leaves).collect();
        assert_eq!(leaves, [4, 3, 2, 1].map(Granule::Weights));
        let comes: Vec<_> = pairs.iter().map(|pair| pair.comes).collect();
        assert_eq!(comes, [1, 5, 9, 13].map(Granule::Cache));
    }

    #[test]
    fn weights_come_back_when_a_conversation_ends() {
        let heads = at(&[0, 4, 8, 12], 16, &[0, 1, 2, 3, 4], 5);
        let grown = after(heads.clone(), &small().pairs(&[2000], &heads));
        assert_eq!(grown, at(&[0, 1, 4, 5, 8, 9, 12, 13], 16, &[0], 5));
        let pairs = small().pairs(&[10], &grown);
        assert_eq!(pairs[0], Pair { leaves: Granule::Cache(13), comes: Granule::Weights(1) });
        assert_eq!(after(grown, &pairs), heads);
    }

    #[test]
    fn unused_positions_of_one_stream_leave_before_weights() {
        let layout = CacheLayout::read("2:2048:1x2048/8388608").unwrap();
        let parts = CacheParts::new(&layout, GRANULE).unwrap();
        let residence = at(&[0, 2, 3], 4, &[0, 1], 2);
        let pairs = parts.pairs(&[2048, 5], &residence);
        assert_eq!(pairs, [Pair { leaves: Granule::Cache(3), comes: Granule::Cache(1) }]);
    }

    #[test]
    fn a_tensor_without_rows_never_leaves() {
        let layout = CacheLayout::read("1:2048:1x2048/4194304,0/4194304").unwrap();
        let parts = CacheParts::new(&layout, GRANULE).unwrap();
        let residence = at(&[0, 1, 2, 3], 4, &[], 2);
        let pairs = parts.pairs(&[0], &residence);
        assert_eq!(pairs, [Pair { leaves: Granule::Cache(1), comes: Granule::Weights(0) }]);
    }

    proptest::proptest! {
        #[test]
        fn every_used_position_is_on_the_card_where_there_is_room_and_nothing_is_lost(
            streams in 1_u32..5,
            positions in 1_u32..3000,
            rows in proptest::collection::vec((1_u32..4, 0_u64..5000, 0_u64..5000, 0_u64..600), 1..6),
            weights in 0_usize..40,
            depths in proptest::collection::vec(proptest::collection::vec(0_u32..3000, 4), 1..6),
            on_card in proptest::collection::vec(proptest::prelude::any::<bool>(), 600),
        ) {
            const GRANULE: u64 = 1 << 18;
            let mut layout = CacheLayout::new(streams, positions).unwrap();
            let all = u64::from(streams) * u64::from(positions);
            for (layers, key, value, padding) in rows {
                let tensor = |row| plimsoll_wire::cache::CacheTensor { row, size: row * all + padding };
                proptest::prop_assert!(layout.add(layers, [tensor(key), tensor(value)]).is_some());
            }
            let parts = CacheParts::new(&layout, GRANULE).unwrap();
            let pick = |from: usize, count: usize| {
                (0..count).map(|at| on_card[(from + at) % on_card.len()]).collect::<Vec<_>>()
            };
            let mut residence = Residence { cache: pick(0, parts.granules()), weights: pick(300, weights) };
            let count = |of: &Residence| of.cache.iter().chain(&of.weights).filter(|on| **on).count();
            let card = count(&residence);
            for depths in depths {
                let pairs = parts.pairs(&depths, &residence);
                residence = after(residence, &pairs);
                proptest::prop_assert_eq!(count(&residence), card);
                proptest::prop_assert_eq!(parts.pairs(&depths, &residence), []);
                let uses = parts.uses(&depths);
                let used = uses.iter().filter(|of| of.is_used()).count();
                let outside = (0..uses.len()).filter(|at| uses[*at].is_used() && !residence.cache[*at]).count();
                proptest::prop_assert_eq!(outside, used.saturating_sub(card));
            }
        }
    }
}
