//! Decides how often guard's replacement of a ggml pool returns idle memory to the driver.

use crate::clock;

/// Frees between two readings of the clock: one evaluation of a model makes a few hundred.
const FREES: u32 = 512;
const SECONDS: u64 = 1;

/// Number of frees since the clock was read, and the second of the last trim.
#[derive(Debug, Default)]
pub(super) struct TrimInterval {
    frees: u32,
    last: u64,
}

impl TrimInterval {
    /// Counts a free that left `live` bytes; true if a trim is due.
    pub(super) fn due(&mut self, live: u64) -> bool {
        // DECISION: trims happen during the program's own calls, at most once a second, because this library
        // has no thread. A trim releases only memory that was idle during several trims, so memory that every
        // prompt needs stays mapped.
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
