//! Slows down reads of an event stream whose events arrive faster than a person reads, to save work.
//!
//! DECISION: after eight pieces with less than a millisecond between them, the engine's connection is read
//! once per millisecond. This ends when a read finds no data. Each read costs the engine, the daemon and the
//! client a thread switch. At full speed, 64 streams took two and a half times as long as with reads of many
//! events (measured). A token that takes longer than a millisecond is passed on at once, as is the first of
//! each burst.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::joined::MOST;

/// Time between two reads of a stream that is paced.
const GAP: Duration = Duration::from_millis(1);
/// Pieces with less than that between them, after which a stream is paced.
const BURST: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Pieces that came within the gap.
    quick: u32,
    pause: Option<Pin<Box<Sleep>>>,
    /// The pause is over, and nothing was read since.
    has_paused: bool,
}

impl Pace {
    /// Notes a piece of this length that goes to the client.
    pub(super) fn passed(&mut self, length: usize, now: Instant) {
        let is_quick = self.has_paused || self.last.is_some_and(|last| now - last < GAP);
        // More may wait behind a full piece.
        self.quick = if is_quick && length < MOST { self.quick.saturating_add(1) } else { 0 };
        self.has_paused = false;
        self.last = Some(now);
    }

    /// Waits until the engine may be read again.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let (BURST.., Some(last), false) = (self.quick, self.last, self.has_paused) {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep_until(last + GAP)));
            ready!(pause.as_mut().poll(context));
            self.pause = None;
            self.has_paused = true;
        }
        Poll::Ready(())
    }

    /// The engine has nothing to read.
    pub(super) fn is_idle(&mut self) {
        if self.has_paused {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn wait(pace: &mut Pace) -> Duration {
        let start = Instant::now();
        poll_fn(|context| pace.poll(context)).await;
        start.elapsed()
    }

    #[tokio::test]
    async fn a_burst_is_read_once_in_a_millisecond_and_a_slow_stream_at_once() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..100 {
            pace.passed(50, now);
            now += GAP;
            assert!(pace.quick == 0, "{pace:?}");
        }
        now = Instant::now();
        for _ in 0..BURST {
            assert!(pace.quick < BURST);
            pace.passed(50, now);
        }
        let start = Instant::now();
        for _ in 0..10 {
            pace.passed(50, Instant::now());
            wait(&mut pace).await;
        }
        assert!(start.elapsed() >= 10 * GAP, "{:?}", start.elapsed());
        pace.is_idle();
        pace.passed(50, Instant::now());
        assert_eq!(pace.quick, 0, "a stream that paused is read at once");
    }

    #[test]
    fn full_pieces_do_not_wait() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.passed(MOST, Instant::now()));
        assert_eq!(pace.quick, 0);
    }
}
