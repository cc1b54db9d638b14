//! Broadcasts events and log lines from one writer to many listeners.
//!
//! A listener that reads too slowly loses entries and learns how many.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::sync::watch;

use super::standing_access::StandingAccess;

/// Pieces that a listener may be behind.
const SLACK: usize = 1024;

#[derive(Debug)]
pub struct Feed(Sender<Bytes>);

impl Default for Feed {
    fn default() -> Self {
        Self(Sender::new(SLACK))
    }
}

impl Feed {
    /// Starts listening; `first` is delivered before everything that is published from now on.
    pub fn listen(&self, first: Option<Bytes>) -> FeedListener {
        // A listener that lags is cut off: it cannot make up for a state that it missed.
        FeedListener::new(first, self.0.subscribe(), |piece| piece, |_| None)
    }

    pub fn publish(&self, piece: &Bytes) {
        // An error means that there is no listener.
        let _ = self.0.send(piece.clone());
    }

    pub fn listeners(&self) -> usize {
        self.0.receiver_count()
    }

    /// True if there is a listener; without one no piece need be built.
    pub fn is_heard(&self) -> bool {
        self.0.receiver_count() > 0
    }
}

/// The moment from which a feed ends, because the server does, or the access of its client.
pub(crate) struct Ending(Pin<Box<dyn Future<Output = ()>>>);

impl Ending {
    pub(crate) fn new(mut is_ending: watch::Receiver<bool>, access: Option<StandingAccess>) -> Self {
        let lost = async {
            match access {
                Some(access) => access.ended().await,
                None => pending().await,
            }
        };
        Self(Box::pin(async move {
            tokio::select! {
                // An error means that the server is gone.
                _ = is_ending.wait_for(|is_ending| *is_ending) => {}
                () = lost => {}
            }
        }))
    }

    /// Item of `piece`, or the end of the feed.
    pub(crate) fn or(
        &mut self,
        context: &mut Context<'_>,
        piece: impl FnOnce(&mut Context<'_>) -> Poll<Option<Bytes>>,
    ) -> Poll<Option<Bytes>> {
        match self.0.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => piece(context),
        }
    }
}

type Received<T> = Pin<Box<dyn Future<Output = (Receiver<T>, Result<T, RecvError>)>>>;

/// Stream of a broadcast's pieces as they are published, after a first one.
pub struct FeedListener<T = Bytes> {
    first: Option<Bytes>,
    next: Received<T>,
    show: fn(T) -> Bytes,
    /// The piece that reports how many were missed; `None` cuts the listener off.
    missed: fn(u64) -> Option<Bytes>,
}

impl<T> fmt::Debug for FeedListener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedListener").field("first", &self.first).finish_non_exhaustive()
    }
}

impl<T: Clone + 'static> FeedListener<T> {
    pub fn new(
        first: Option<Bytes>,
        receiver: Receiver<T>,
        show: fn(T) -> Bytes,
        missed: fn(u64) -> Option<Bytes>,
    ) -> Self {
        let next = Box::pin(receive(receiver));
        Self { first, next, show, missed }
    }

    /// Returns the next piece; `None` when there will be no more.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        let (receiver, received) = ready!(self.next.as_mut().poll(context));
        // Boxed anew for each piece: the future owns the receiver while it waits.
        self.next = Box::pin(receive(receiver));
        Poll::Ready(match received {
            Ok(piece) => Some((self.show)(piece)),
            Err(RecvError::Lagged(count)) => (self.missed)(count),
            Err(RecvError::Closed) => None,
        })
    }
}

async fn receive<T: Clone>(mut receiver: Receiver<T>) -> (Receiver<T>, Result<T, RecvError>) {
    let received = receiver.recv().await;
    (receiver, received)
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

    #[tokio::test]
    async fn a_listener_that_does_not_read_is_cut_off_and_one_that_left_is_forgotten() {
        let feed = Feed::default();
        let mut listener = feed.listen(None);
        (0..=SLACK).for_each(|_| feed.publish(&Bytes::from_static(b"x")));
        assert_eq!(poll_fn(|cx| listener.poll_next(cx)).await, None);
        drop(listener);
        assert!(!feed.is_heard());
    }
}
