//! Interval between releases (trims) of a pool's idle memory.
//!
//! DECISION: the program's own calls drive the trims, because guard (this library) has no thread. After a
//! number of frees, while no block is live, the clock is read, and once a second the policy trims. A trim
//! releases memory that was idle during several trims, so memory that every prompt needs is not unmapped and
//! mapped again in between. A program that makes no calls keeps its memory until another process requests it
//! through guard's shared-memory file (the page).

/// Frees between two readings of the clock: one evaluation of a model makes a few hundred.
const FREES: u32 = 512;
const SECONDS: i64 = 1;

/// Number of frees since the clock was read, and the second of the last trim.
#[derive(Debug, Default)]
pub(super) struct TrimInterval {
    frees: u32,
    last: i64,
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
        let now = now();
        let due = now - self.last >= SECONDS;
        if due {
            self.last = now;
        }
        due
    }
}

fn now() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is ours. Ticks of a few milliseconds will do, and cost no system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec
}
