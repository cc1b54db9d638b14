//! Grows a pool ahead of need, so that the next request needs no driver call.
//!
//! The growth is a share of the pool's memory, and at most a quarter of the free memory.

/// The most that is mapped ahead at once: for regions up to 256 MiB, and for larger ones.
const SMALL: u64 = 8 << 20;
const LARGE: u64 = 64 << 20;

/// Bytes to map at the end of a region of `reserved` bytes that lacks `need` bytes, with `headroom` free
/// beside it. Whole granules, as `need` is.
pub(super) fn chunk(need: u64, reserved: u64, headroom: u64, granule: u64) -> u64 {
    // DECISION: a fixed factor of 2 would fail with a budget below twice the peak. Small steps leave memory
    // to other programs.

    // Steps grow with the region: about six percent of it, in bounds that keep the number of driver calls
    // logarithmic.
    let most = (reserved / 32).clamp(SMALL, LARGE);
    let ahead = (reserved / 16).saturating_add(granule).min(most).min(headroom / 4);
    need.max(ahead - ahead % granule)
}

/// Bytes for a slot that replaces one that `need` has outgrown: `need` times 1 + min(1/4, headroom / (4
/// `need`)).
pub(super) fn slot(need: u64, headroom: u64) -> u64 {
    // At the limit of the card the slot is exact: a quarter more could be the difference to a refusal.
    need.saturating_add(need.min(headroom) / 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_chunk_is_a_sixteenth_of_a_small_region_and_a_thirty_second_of_a_large_one() {
        let chunk = |need, reserved| chunk(need, reserved, u64::MAX, 2 * MIB) / MIB;
        assert_eq!(chunk(2 * MIB, 2 * MIB), 2);
        assert_eq!(chunk(2 * MIB, 64 * MIB), 6);
        assert_eq!(chunk(2 * MIB, 240 * MIB), 8);
        assert_eq!(chunk(2 * MIB, 1024 * MIB), 32);
        assert_eq!(chunk(2 * MIB, 4096 * MIB), 64);
        assert_eq!(chunk(300 * MIB, 4096 * MIB), 300);
    }

    #[test]
    fn near_the_limit_growth_is_the_exact_need() {
        assert_eq!(chunk(2 * MIB, 4096 * MIB, 7 * MIB, 2 * MIB), 2 * MIB);
        assert_eq!(slot(100, 0), 100);
        assert_eq!(slot(100, 40), 110);
        assert_eq!(slot(100, 4000), 125);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn growth_covers_the_need_and_stays_within_a_quarter(need: u64, reserved: u64, headroom: u64, shift in 0..22_u32) {
            let granule = 1 << shift;
            let need = need / granule * granule;
            let mapped = chunk(need, reserved, headroom, granule);
            prop_assert!(mapped >= need && mapped.is_multiple_of(granule) && (mapped == need || mapped <= headroom / 4));
            let slot = slot(need, headroom);
            prop_assert!(slot >= need && slot - need <= need.min(headroom) / 4);
        }
    }
}
