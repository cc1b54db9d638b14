//! Holds the current time as supplied by the caller, and the time at which the caller must call again.

use super::time::Moment;

#[derive(Clone, Debug)]
pub(crate) struct Clock {
    now: Moment,
    wake: Moment,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { now: Moment::START, wake: Moment::NEVER }
    }

    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Moves the time forward; a time in the past leaves it as it is.
    pub(crate) fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    /// Requests a wake-up at `at`. Returns true if the driver must be notified, because it is earlier than
    /// the pending one.
    pub(crate) fn arm(&mut self, at: Moment) -> bool {
        let earlier = at < self.wake;
        if earlier {
            self.wake = at;
        }
        earlier
    }

    /// Handles a tick: the pending wake-up is done if its time has come.
    pub(crate) fn tick(&mut self) {
        // A tick may come early; the pending wake-up then stays pending, or it would be requested twice.
        if self.now >= self.wake {
            self.wake = Moment::NEVER;
        }
    }
}
