//! How much more than is needed to take, so that the next request needs no call to the driver.
//!
//! DECISION: a share of what is held, and never more than a quarter of what the card has left. Whatever is taken ahead
//! and turns out to be in use cannot be given back, so near the limit growth must go down to the exact size; a fixed
//! factor of 2 fails below twice the peak (notes/pool.md §0.9).

/// The most that is mapped ahead at once.
const CHUNK: u64 = 64 << 20;

/// Bytes to map at the end of a region that has `reserved` bytes, if `need` is what is missing and `headroom` what the
/// card has beside it. Whole granules, as `need` is.
pub(super) fn chunk(need: u64, reserved: u64, headroom: u64, granule: u64) -> u64 {
    let ahead = CHUNK.min(reserved / 16).min(headroom / 4);
    need.max(ahead - ahead % granule)
}

/// Bytes for a slot that replaces one that `need` has outgrown: `need` times 1 + min(1/4, headroom / (4 `need`)).
pub(super) fn slot(need: u64, headroom: u64) -> u64 {
    need.saturating_add(need.min(headroom) / 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_chunk_is_a_sixteenth_of_the_region_up_to_64_mib() {
        let chunk = |need, reserved| chunk(need, reserved, u64::MAX, 2 * MIB) / MIB;
        assert_eq!(chunk(2 * MIB, 2 * MIB), 2);
        assert_eq!(chunk(2 * MIB, 100 * MIB), 6);
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
