//! Which process a slot is of.

/// One more than the largest process number of 64-bit Linux (`PID_MAX_LIMIT`, include/linux/threads.h @ linux 6.1).
const NUMBERS: u64 = 1 << 22;
/// Room for its start: seven hundred years of hundredths of a second.
const STARTS: u64 = 1 << 41;

/// A process: its number, and when it began in ticks since the machine did, because numbers are used again. 0 is a start that is
/// not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    pub fn new(process: u32, start: u64) -> Self {
        Self((start % STARTS) * NUMBERS + u64::from(process) % NUMBERS)
    }

    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    pub fn process(self) -> u32 {
        u32::try_from(self.0 % NUMBERS).unwrap_or(0)
    }

    /// Whether it can be the process with its number that began at `start`.
    pub const fn can_be(self, start: u64) -> bool {
        let own = self.0 / NUMBERS % STARTS;
        own == 0 || own == start % STARTS
    }
}
