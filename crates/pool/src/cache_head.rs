//! Splits a KV cache between card and host memory by token position: the first positions of every layer stay
//! on the card.
//!
//! A conversation uses the positions from the first one on. So the card has those that are in use, and host
//! memory those that nothing reads until a conversation is long enough.

use alloc::vec::Vec;

use plimsoll_wire::cache::CacheLayout;

// DECISION: what a cache gives up ends here, and beyond it weights overflow. A token reads a weight once and
// a used position about five times: 79 MiB of cache in host memory cost 8.1 ms on an H200. Nearly every
// conversation uses its first few thousand positions.
/// Positions of each stream that stay on the card while weights can overflow instead.
const KEPT: u64 = 4096;

/// Consecutive bytes of a range that are to be in one kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub bytes: u64,
    pub on_card: bool,
}

/// The part of a cache that is on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHead {
    layout: CacheLayout,
    granule: u64,
    /// Positions on the card, summed over the rows of all tensors and streams: the first rows have one more
    /// than the last ones, so that no granule is left over.
    units: u64,
}

impl CacheHead {
    /// As many positions as `room` bytes of the card hold, in whole granules; `None` if not even what has no
    /// positions fits.
    pub fn within(layout: &CacheLayout, granule: u64, room: u64) -> Option<Self> {
        let head = |units| Self { layout: *layout, granule: granule.max(1), units };
        let (mut low, mut high) = (0, count(layout) * u64::from(layout.positions()));
        if head(low).on_card() > room {
            return None;
        }
        // `low` fits; whatever is beyond `high` does not.
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if head(middle).on_card() <= room {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        Some(head(low))
    }

    /// Positions that every layer has on the card.
    pub fn positions(&self) -> u64 {
        self.units / count(&self.layout).max(1)
    }

    /// Bytes on the card.
    pub fn on_card(&self) -> u64 {
        let mut sum = 0;
        self.each(|start, end| sum += end - start);
        sum
    }

    /// The range in parts, from the front on. `size` is that of the allocation in whole granules.
    pub fn segments(&self, size: u64) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut at = 0;
        let mut add = |bytes, on_card| {
            if bytes > 0 {
                segments.push(Segment { bytes, on_card });
            }
        };
        self.each(|start, end| {
            let end = end.min(size);
            add(start - at, false);
            add(end - start, true);
            at = end;
        });
        add(size - at, false);
        segments
    }

    /// Calls `part` with each run of granules on the card, in order.
    fn each(&self, mut part: impl FnMut(u64, u64)) {
        let rows = count(&self.layout).max(1);
        let (all, more) = (self.units / rows, self.units % rows);
        let mut number = 0;
        let mut run = (0, 0);
        for of in self.layout.rows() {
            let bytes = if of.row == 0 {
                of.size
            } else {
                number += 1;
                (all + u64::from(number <= more)) * of.row
            };
            if bytes == 0 {
                continue;
            }
            let start = of.start - of.start % self.granule;
            let end = (of.start + bytes).next_multiple_of(self.granule);
            if start <= run.1 {
                run.1 = end.max(run.1);
            } else {
                part(run.0, run.1);
                run = (start, end);
            }
        }
        if run.1 > run.0 {
            part(run.0, run.1);
        }
    }
}

/// Rows with positions.
fn count(layout: &CacheLayout) -> u64 {
    layout.rows().filter(|rows| rows.row > 0).fold(0, |sum, _| sum + 1)
}

/// Bytes of a cache that go to host memory before any weight does.
pub fn yielded(layout: &CacheLayout, granule: u64) -> u64 {
    let kept = KEPT.min(layout.positions().into()) * count(layout);
    let head = CacheHead { layout: *layout, granule: granule.max(1), units: kept };
    layout.size().saturating_sub(head.on_card())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GRANULE: u64 = 2 * MIB;

    fn layout(text: &str) -> CacheLayout {
        CacheLayout::read(text).unwrap()
    }

    /// 32 layers, K and V of 128 MiB each: a granule has 1024 positions of one of them.
    fn eight_billion() -> CacheLayout {
        layout("1:65536:32x2048/134217728,2048/134217728")
    }

    fn whole(segments: &[Segment]) -> (u64, u64) {
        let sum =
            |on_card| segments.iter().filter(|part| part.on_card == on_card).map(|part| part.bytes).sum();
        (sum(true), sum(false))
    }

    #[test]
    fn every_layer_has_its_first_positions_on_the_card() {
        let cache = eight_billion();
        let head = CacheHead::within(&cache, GRANULE, 3000 * MIB).unwrap();
        let segments = head.segments(cache.size());
        assert_eq!(whole(&segments), (3000 * MIB, 5192 * MIB));
        assert_eq!(head.positions(), 23 * 1024);
        assert_eq!(segments.len(), 128);
        // 1500 granules for 64 tensors: 23 each, and one more for the first 28.
        let sizes: Vec<u64> = segments.iter().step_by(2).map(|part| part.bytes / GRANULE).collect();
        assert_eq!(sizes[..28], [24; 28]);
        assert_eq!(sizes[28..], [23; 36]);
    }

    /// Output of guard on an H200 before the speeds were measured.
    #[test]
    fn measured_caches_have_as_many_positions_on_the_card() {
        let file = include_str!("../../../data/measured/h200-spill-depth-0.5.0.json");
        let file: serde_json::Value = serde_json::from_str(file).unwrap();
        let cases = file["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 6);
        for case in cases {
            let cache = layout(case["layout"].as_str().unwrap());
            let room = case["card_mib"].as_u64().unwrap() * MIB;
            let head = CacheHead::within(&cache, GRANULE, room).unwrap();
            assert_eq!(Some(head.positions()), case["positions"].as_u64(), "{}", case["case"]);
        }
    }

    #[test]
    fn a_granule_with_a_used_position_is_on_the_card() {
        // Tensors of 3 MiB: every second one begins in the middle of a granule.
        let cache = layout("1:3072:4x1024/3145728");
        let head = CacheHead::within(&cache, GRANULE, 8 * MIB).unwrap();
        let segments = head.segments(12 * MIB);
        assert_eq!(whole(&segments), (8 * MIB, 4 * MIB));
        assert!(head.positions() >= 1024, "{}", head.positions());
    }

    #[test]
    fn streams_have_heads_of_their_own() {
        let cache = layout("4:4096:1x4096/67108864");
        let head = CacheHead::within(&cache, GRANULE, 16 * MIB).unwrap();
        let parts: Vec<_> =
            head.segments(cache.size()).iter().map(|part| (part.bytes / MIB, part.on_card)).collect();
        let one = [(4, true), (12, false)];
        assert_eq!(parts, [one; 4].concat());
        assert_eq!(head.positions(), 1024);
    }

    #[test]
    fn a_tensor_without_rows_is_on_the_card_as_a_whole() {
        let cache = layout("1:4096:2x2048/8388608,0/8388608");
        assert_eq!(CacheHead::within(&cache, GRANULE, 14 * MIB), None);
        let head = CacheHead::within(&cache, GRANULE, 20 * MIB).unwrap();
        assert_eq!(whole(&head.segments(cache.size())), (20 * MIB, 12 * MIB));
    }

    #[test]
    fn with_room_for_all_nothing_is_in_host_memory() {
        let cache = eight_billion();
        let head = CacheHead::within(&cache, GRANULE, u64::MAX).unwrap();
        assert_eq!(head.positions(), 65536);
        assert_eq!(whole(&head.segments(cache.size())), (8192 * MIB, 0));
    }

    #[test]
    fn the_first_thousands_of_positions_are_not_given_up() {
        assert_eq!(yielded(&eight_billion(), GRANULE), 8192 * MIB - 64 * 4 * GRANULE);
        assert_eq!(yielded(&layout("1:2048:2x2048/4194304"), GRANULE), 0);
    }

    proptest::proptest! {
        #[test]
        fn the_parts_are_the_whole_and_the_card_has_no_more_than_its_room(
            streams in 1_u32..5,
            positions in 1_u32..5000,
            groups in proptest::collection::vec((1_u32..5, 0_u64..5000, 0_u64..5000, 0_u64..600), 1..8),
            granule in proptest::sample::select(vec![1_u64, 4096, GRANULE]),
            room in 0_u64..(400 * MIB),
        ) {
            let mut cache = CacheLayout::new(streams, positions).unwrap();
            let rows = u64::from(streams) * u64::from(positions);
            for (layers, key, value, padding) in groups {
                let tensor = |row| plimsoll_wire::cache::CacheTensor { row, size: row * rows + padding };
                proptest::prop_assert!(cache.add(layers, [tensor(key), tensor(value)]).is_some());
            }
            let size = cache.size().next_multiple_of(granule);
            if let Some(head) = CacheHead::within(&cache, granule, room) {
                let (card, host) = whole(&head.segments(size));
                proptest::prop_assert!(card <= room && card + host == size);
                // The next position of one row does not fit.
                let next = 5000 + 2 * granule;
                let is_full = head.positions() == u64::from(positions) || room - card < next;
                proptest::prop_assert!(is_full, "{} of {positions}, {card} of {room}", head.positions());
            }
        }
    }
}
