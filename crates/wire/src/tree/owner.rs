//! Identifies the process that owns an entry of the shared budget ledger, by its PID and start time.

/// One more than the largest process number of 64-bit Linux (`PID_MAX_LIMIT`, include/linux/threads.h @ linux
/// 6.1).
const NUMBERS: u64 = 1 << 22;
/// Room for the start time: seven hundred years in hundredths of a second.
const STARTS: u64 = 1 << 41;

/// Identity of a process: its number, and its start time in clock ticks since boot, because numbers are
/// reused. Start time 0 means unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotOwner(u64);

impl SlotOwner {
    pub fn new(process: u32, start: u64) -> Self {
        // Both fit one word, so that a slot is taken and marked with a single atomic operation; bit 63 stays
        // free for the mark.
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

    /// True if it can be the process with its number that began at `start`.
    pub const fn can_be(self, start: u64) -> bool {
        let own = self.0 / NUMBERS % STARTS;
        // An unknown start time matches every process: a living owner must never be taken for dead.
        own == 0 || own == start % STARTS
    }
}
