//! Broadcast of events from one writer to many listeners on one thread.
//!
//! A listener that does not read is cut off when it lags too far; it never slows the writer or the others.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

const MOST_PIECES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Feed {
    seats: RefCell<Vec<Weak<RefCell<Seat>>>>,
}

#[derive(Debug, Default)]
struct Seat {
    pieces: VecDeque<Bytes>,
    waker: Option<Waker>,
    closed: bool,
}

/// The pieces that a listener has not read yet, and those to come.
#[derive(Debug)]
pub(crate) struct Listener(Rc<RefCell<Seat>>);

impl Feed {
    /// Starts listening; `first` comes before everything that is published from now on.
    pub(crate) fn listen(&self, first: Option<Bytes>) -> Listener {
        let seat = Rc::new(RefCell::new(Seat::default()));
        seat.borrow_mut().pieces.extend(first);
        self.seats.borrow_mut().push(Rc::downgrade(&seat));
        Listener(seat)
    }

    pub(crate) fn publish(&self, piece: &Bytes) {
        self.seats.borrow_mut().retain(|seat| {
            seat.upgrade()
                .is_some_and(|seat| seat.borrow_mut().put(piece.clone()))
        });
    }

    /// True if there is a listener; without one no piece need be built.
    pub(crate) fn is_heard(&self) -> bool {
        self.seats.borrow().iter().any(|seat| seat.strong_count() > 0)
    }
}

/// Listeners hear the end.
impl Drop for Feed {
    fn drop(&mut self) {
        for seat in self.seats.borrow().iter().filter_map(Weak::upgrade) {
            seat.borrow_mut().close();
        }
    }
}

impl Seat {
    /// Returns whether the listener may stay.
    fn put(&mut self, piece: Bytes) -> bool {
        if self.pieces.len() >= MOST_PIECES {
            self.close();
            return false;
        }
        self.pieces.push_back(piece);
        self.waker.take().into_iter().for_each(Waker::wake);
        true
    }

    fn close(&mut self) {
        self.closed = true;
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Listener {
    /// Returns the next piece; `None` when there will be no more.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut seat = self.0.borrow_mut();
        if let Some(piece) = seat.pieces.pop_front() {
            return Poll::Ready(Some(piece));
        }
        if seat.closed {
            return Poll::Ready(None);
        }
        seat.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn every_listener_hears_everything_from_where_it_came_in() {
        let feed = Feed::default();
        let mut early = feed.listen(Some(Bytes::from_static(b"hello")));
        feed.publish(&Bytes::from_static(b"1"));
        let mut late = feed.listen(None);
        feed.publish(&Bytes::from_static(b"2"));
        drop(feed);
        for (listener, heard) in [(&mut early, vec!["hello", "1", "2"]), (&mut late, vec!["2"])] {
            for piece in heard {
                assert_eq!(poll_fn(|cx| listener.poll_next(cx)).await.unwrap(), piece);
            }
            assert_eq!(poll_fn(|cx| listener.poll_next(cx)).await, None);
        }
    }

    #[test]
    fn a_listener_that_does_not_read_is_cut_off_and_one_that_left_is_forgotten() {
        let feed = Feed::default();
        let listener = feed.listen(None);
        (0..=MOST_PIECES).for_each(|_| feed.publish(&Bytes::from_static(b"x")));
        assert!(!feed.is_heard() || feed.seats.borrow().is_empty());
        assert_eq!(listener.0.borrow().pieces.len(), MOST_PIECES);
        drop(feed.listen(None));
        assert!(!feed.is_heard());
    }
}
