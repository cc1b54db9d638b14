//! Hash map for numeric identifiers that this program itself assigns.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

// DECISION: a hash of one multiplication. The standard one resists keys that an attacker chooses and costs
// 140 instructions; a request looks up its own number and that of its run eight times.
/// Hash map for identifiers that count up, such as those of requests and runs.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Hash of one number (the multiplier of the golden ratio, Knuth volume 3, section 6.4).
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // Turned, because a map takes its place from the lowest bits, and a product has its best ones at the
        // top.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_that_count_up_have_different_places_and_marks() {
        let hashes = (0..1024_u64).map(|number| {
            let mut hasher = IdHasher::default();
            hasher.write_u64(number);
            hasher.finish()
        });
        let (places, marks): (HashSet<_>, HashSet<_>) = hashes.map(|hash| (hash % 4096, hash >> 57)).unzip();
        assert!(places.len() > 850 && marks.len() == 128, "{} {}", places.len(), marks.len());
    }
}
