//! Parses the answers of Intel's drivers to queries about memory regions (`xe_drm.h`, `i915_drm.h`).

use plimsoll_base::Bytes;

use super::card::MemoryPool;
use super::fdinfo::saturating_sum;
use super::files::IntelDriver;

/// Size of one region in both answers.
const REGION: usize = 88;
/// Class of memory on the card in both answers; 0 is the host's.
const ON_CARD: u16 = 1;

/// Memory on the card; a pool without a total is of an integrated GPU.
///
/// Without rights (`CAP_PERFMON`) both drivers hide what is used: xe states none of it used, and i915 all of
/// it free. That is no reading of an empty card.
pub(super) fn on_card(answer: &[u8], driver: IntelDriver) -> MemoryPool {
    // A count, and padding to 8 or 16 bytes.
    let header = match driver {
        IntelDriver::Xe => 8,
        IntelDriver::I915 => 16,
    };
    let Some((count, regions)) = number(answer, 0).zip(answer.get(header..)) else {
        return MemoryPool::default();
    };
    let count = usize::try_from(count & 0xffff_ffff).unwrap_or(usize::MAX);
    let (mut total, mut used): (Option<Bytes>, Option<Bytes>) = (None, None);
    for region in regions.chunks_exact(REGION).take(count) {
        let class = u16::from_le_bytes([region[0], region[1]]);
        let (Some(size), Some(second), true) = (number(region, 8), number(region, 16), class == ON_CARD)
        else {
            continue;
        };
        let taken = match driver {
            IntelDriver::Xe => second,
            // The second figure is what is left.
            IntelDriver::I915 => size.saturating_sub(second),
        };
        total = Some(saturating_sum(total.unwrap_or_default(), Bytes::new(size)));
        used = Some(saturating_sum(used.unwrap_or_default(), Bytes::new(taken)));
    }
    MemoryPool::new(total.filter(|total| !total.is_zero()), used.filter(|used| !used.is_zero()))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(class: u16, size: u64, second: u64) -> Vec<u8> {
        let mut bytes = vec![0; REGION];
        bytes[..2].copy_from_slice(&class.to_le_bytes());
        bytes[8..16].copy_from_slice(&size.to_le_bytes());
        bytes[16..24].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    fn answer(header: usize, regions: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; header];
        bytes[0] = u8::try_from(regions.len()).unwrap();
        bytes.extend(regions.concat());
        bytes
    }

    #[test]
    fn memory_of_the_card_is_distinguished_from_the_hosts() {
        let gib = |gib: u64| gib << 30;
        let xe = answer(8, &[region(0, gib(64), gib(9)), region(1, gib(12), gib(3))]);
        let pool = on_card(&xe, IntelDriver::Xe);
        assert_eq!((pool.total, pool.used), (Some(Bytes::gib(12)), Some(Bytes::gib(3))));
        let i915 = answer(16, &[region(0, gib(64), gib(64)), region(1, gib(6), gib(5))]);
        let pool = on_card(&i915, IntelDriver::I915);
        assert_eq!((pool.total, pool.used), (Some(Bytes::gib(6)), Some(Bytes::gib(1))));
        let integrated = answer(8, &[region(0, gib(16), gib(1))]);
        assert_eq!(on_card(&integrated, IntelDriver::Xe), MemoryPool::default());
    }

    #[test]
    fn a_use_that_is_hidden_is_unknown_and_a_cut_answer_is_none() {
        let xe = answer(8, &[region(1, 1 << 30, 0)]);
        assert_eq!(on_card(&xe, IntelDriver::Xe).used, None);
        let i915 = answer(16, &[region(1, 1 << 30, 1 << 30)]);
        assert_eq!(on_card(&i915, IntelDriver::I915).used, None);
        for length in 0..xe.len() {
            assert_eq!(on_card(&xe[..length], IntelDriver::Xe), MemoryPool::default());
        }
        assert_eq!(on_card(&[0xff; 96], IntelDriver::Xe), MemoryPool::default());
    }
}
