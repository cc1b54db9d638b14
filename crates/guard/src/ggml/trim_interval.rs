//! How often idle memory is looked at.
//!
//! DECISION: by the calls of the program itself, because there is no thread of ours: after so many frees, while nothing is live,
//! the clock is asked, and once a second the policy is. The policy lets go what rested for some of those looks, so that what one
//! prompt needs and the next needs again is not unmapped and mapped between them. A program that calls nothing keeps what it
//! has until somebody asks for it.

/// Frees between two looks at the clock: one evaluation of a model makes a few hundred.
const FREES: u32 = 512;
const SECONDS: i64 = 1;

#[derive(Debug, Default)]
pub(super) struct Pace {
    frees: u32,
    last: i64,
}

impl Pace {
    /// Counts a free that left `live` bytes; true if it is time to look.
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
