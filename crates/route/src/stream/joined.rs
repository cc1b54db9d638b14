//! Joins events that arrive in a stream at the same time into one chunk.
//!
//! DECISION: an engine sends each event as a separate chunk, and a busy daemon finds many of them in one
//! read. As one chunk they take one write, one TLS record, and one chunk at a host that passed the request
//! on. Copying their bytes costs less than another chunk. The daemon never waits for more events.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

use super::OpenRelay;
use crate::model_service::Pass;

/// The most that is joined: a record of TLS.
pub(super) const MOST: usize = 16 * 1024;

impl<P: Pass> OpenRelay<P> {
    /// The piece with the events behind it that have arrived. An error is kept for the next call.
    pub(super) fn joined(&mut self, first: Bytes, context: &mut Context<'_>) -> Bytes {
        // Only events are small, and of other answers the length is known.
        if self.guard.is_none() || first.len() >= MOST {
            return first;
        }
        let mut joined = Joined { first, rest: BytesMut::new() };
        while joined.len() < MOST {
            match self.ready.pop_front() {
                Some(piece) => joined.add(&piece),
                None if self.broken.is_some() || self.source.is_none() => break,
                None => match self.poll_source(context) {
                    Poll::Ready(outcome) => self.broken = outcome.err(),
                    Poll::Pending => break,
                },
            }
        }
        joined.finish()
    }
}

struct Joined {
    first: Bytes,
    /// All pieces, if there is more than one.
    rest: BytesMut,
}

impl Joined {
    fn len(&self) -> usize {
        self.first.len().max(self.rest.len())
    }

    fn add(&mut self, piece: &[u8]) {
        if self.rest.is_empty() {
            self.rest.reserve((2 * (self.first.len() + piece.len())).min(MOST));
            self.rest.extend_from_slice(&self.first);
        }
        self.rest.extend_from_slice(piece);
    }

    fn finish(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}
