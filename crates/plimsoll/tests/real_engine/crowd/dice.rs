//! Generates pseudo-random numbers for the test with hostile clients, the same in every run.

use std::time::Duration;

/// xorshift64*.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::try_from(seed + 1).expect("a small seed"))
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }

    pub(super) fn pause(&mut self, least: u64, most: u64) {
        std::thread::sleep(Duration::from_millis(least + self.below(most - least + 1)));
    }
}
