//! Interval between trims of idle memory.
//!
//! DECISION: the program's own calls drive the trims, because guard has no thread. After a number of frees,
//! while nothing is live, the clock is read, and once a second the policy trims. It releases what rested for
//! several trims, so that memory that every prompt needs is not unmapped and mapped between two prompts. A
//! program that calls nothing keeps its memory until the page asks for it.

use crate::clock;

/// Frees between two readings of the clock: one evaluation of a model makes a few hundred.
const FREES: u32 = 512;
const SECONDS: u64 = 1;

/// Frees since the last reading of the clock, and the second of the last trim.
#[derive(Debug, Default)]
pub(super) struct TrimInterval {
    frees: u32,
    last: u64,
}

impl TrimInterval {
    /// Counts a free that left `live` bytes; true if a trim is due.
    pub(super) fn due(&mut self, live: u64) -> bool {
        self.frees = self.frees.saturating_add(1);
        live == 0 && self.frees >= FREES && self.late()
    }

    #[cold]
    fn late(&mut self) -> bool {
        self.frees = 0;
        let now = clock::seconds();
        let due = now.saturating_sub(self.last) >= SECONDS;
        if due {
            self.last = now;
        }
        due
    }
}
