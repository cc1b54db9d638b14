//! Streams an engine's answer to the client.
//!
//! If the engine fails, an event stream ends with an `error` event. For any other answer, the connection is
//! closed.

mod joined;
mod pace;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use self::pace::Pace;
use super::access_key::KeyUse;
use super::connection::StallLimit;
use super::model_service::Pass;
use super::problem::HttpProblem;
use super::sse::{EventDialect, EventGuard};
use super::stream_source::StreamSource;
use super::tokens::{AnswerTokens, PromptTail};
use super::tunnel::Tunnel;

type Fate = Pin<Box<dyn Future<Output = HttpProblem>>>;

/// The engine closed the connection within an answer that cannot be ended correctly.
#[derive(Debug, thiserror::Error)]
#[error("the engine's answer ended early: {0}")]
pub(crate) struct BrokenAnswer(hyper::Error);

/// Answer of an engine on its way to the client.
///
/// DECISION: small, because hyper moves it several times. An answer that is complete holds its bytes alone,
/// and only one that is still read has memory of its own.
pub(crate) struct Relay<P: Pass> {
    answer: RelayedAnswer<P>,
    stall_limit: StallLimit,
}

enum RelayedAnswer<P: Pass> {
    Whole(Bytes),
    Open(Box<OpenRelay<P>>),
    /// The end of HTTP on the client's connection, which takes it.
    Tunnel(Box<Tunnel>),
    Over,
}

// The stream holds its pass (the permission to use the engine) until the last byte.
/// An answer that is read while its client gets it.
struct OpenRelay<P: Pass> {
    source: Option<StreamSource>,
    /// Held until the answer is over.
    pass: Option<P>,
    /// Pieces that may go to the client and have not yet.
    ready: VecDeque<Bytes>,
    guard: Option<(EventGuard, EventDialect)>,
    pace: Pace,
    /// The use of the client's key by this request.
    key_use: Option<Box<KeyUse>>,
    /// Last bytes of the answer.
    tail: PromptTail,
    /// Set when the engine broke off; the future returns the reason.
    fate: Option<Fate>,
    /// The end of an answer that cannot be ended correctly, sent after the pieces before it.
    broken: Option<BrokenAnswer>,
}

impl<P: Pass> Relay<P> {
    /// Relays `source`, whose first piece `first` was read already. With a dialect, the answer is an event
    /// stream and is guarded as such.
    pub(crate) fn new(
        source: StreamSource,
        (mut pass, key_use): (P, Option<Box<KeyUse>>),
        first: Bytes,
        dialect: Option<EventDialect>,
    ) -> Self {
        let stall_limit = pass.stall_limit();
        // A body with a length ends with it, before a further read says so.
        if dialect.is_none() && source.body.is_end_stream() {
            end(source, pass, key_use, AnswerTokens::in_end_of(&first), first.len());
            let answer = if first.is_empty() { RelayedAnswer::Over } else { RelayedAnswer::Whole(first) };
            return Self { answer, stall_limit };
        }
        if dialect.is_some() {
            pass.streams();
        }
        let mut open = Box::new(OpenRelay {
            source: Some(source),
            pass: Some(pass),
            key_use,
            // `EventGuard::feed` usually passes two pieces at most: what it held back, and the new one.
            ready: VecDeque::with_capacity(2),
            guard: dialect.map(|dialect| (EventGuard::default(), dialect)),
            pace: Pace::default(),
            tail: PromptTail::default(),
            fate: None,
            broken: None,
        });
        open.take(first);
        if open.is_read() {
            open.finish();
        }
        Self { answer: RelayedAnswer::Open(open), stall_limit }
    }

    /// An answer without a body, after which the connection is the tunnel's.
    pub(crate) fn upgraded(tunnel: Tunnel) -> Self {
        Self { answer: RelayedAnswer::Tunnel(Box::new(tunnel)), stall_limit: StallLimit::default() }
    }

    pub(crate) fn take_tunnel(&mut self) -> Option<Tunnel> {
        match mem::replace(&mut self.answer, RelayedAnswer::Over) {
            RelayedAnswer::Tunnel(tunnel) => Some(*tunnel),
            other => {
                self.answer = other;
                None
            }
        }
    }

    /// The time that the client may take nothing of this answer.
    pub(crate) fn stall_limit(&self) -> StallLimit {
        self.stall_limit.clone()
    }
}

/// Ends a request whose answer was read to its end; `bytes` of it were not counted yet.
fn end<P: Pass>(
    source: StreamSource,
    pass: P,
    key_use: Option<Box<KeyUse>>,
    tokens: Option<AnswerTokens>,
    bytes: usize,
) {
    // First, because `finished` may let the next request in, which then finds an idle connection.
    pass.upstream().give_back(source.wire);
    if let Some(mut key_use) = key_use {
        key_use.passed(bytes);
        key_use.answered(tokens.map(|tokens| tokens.total));
    }
    pass.finished(tokens);
}

impl<P: Pass> OpenRelay<P> {
    fn take(&mut self, data: Bytes) {
        self.tail.feed(&data);
        self.pass.iter().for_each(P::yields);
        self.key_use.iter_mut().for_each(|key_use| key_use.passed(data.len()));
        match &mut self.guard {
            _ if data.is_empty() => {}
            Some((guard, _)) => guard.feed(data, &mut self.ready),
            None => self.ready.push_back(data),
        }
    }

    /// True if the engine has sent the last byte.
    fn is_read(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.body.is_end_stream())
    }

    fn finish(&mut self) {
        if let (Some(source), Some(pass)) = (self.source.take(), self.pass.take()) {
            end(source, pass, self.key_use.take(), self.tail.tokens(), 0);
        }
        // The engine ended the stream itself, so an event without its blank line still belongs to the client.
        if let Some((guard, _)) = &mut self.guard {
            guard.release(&mut self.ready);
        }
    }

    /// Ends the stream with an event if that can be, else with the connection.
    fn break_off(&mut self, error: hyper::Error) -> Result<(), BrokenAnswer> {
        // Dropping the connection is what cancels the rest in the engine.
        self.source = None;
        // Asked before the client gets an error: only the supervisor knows why the engine went away.
        let fate = self.pass.take().map(P::broke);
        match &self.guard {
            Some((guard, _)) if guard.can_end() => {
                self.fate = fate;
                Ok(())
            }
            _ => Err(BrokenAnswer(error)),
        }
    }

    fn poll_source(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BrokenAnswer>> {
        let Some(source) = &mut self.source else {
            return Poll::Ready(Ok(()));
        };
        match ready!(source.poll(context)) {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.take(data);
                }
                if self.is_read() {
                    self.finish();
                }
            }
            Some(Err(error)) => self.break_off(error)?,
            None => self.finish(),
        }
        Poll::Ready(Ok(()))
    }

    fn poll_fate(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(fate) = &mut self.fate {
            let problem = ready!(fate.as_mut().poll(context));
            self.fate = None;
            if let Some((_, dialect)) = self.guard.take() {
                self.ready.push_back(dialect.error_event(&problem));
            }
        }
        Poll::Ready(())
    }
}

impl<P: Pass> OpenRelay<P> {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        loop {
            // Pieces first: an error event is queued behind what came before it.
            if let Some(piece) = self.ready.pop_front() {
                let piece = self.joined(piece, context);
                if self.guard.is_some() {
                    self.pace.passed(piece.len(), Instant::now());
                }
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if let Some(broken) = self.broken.take() {
                return Poll::Ready(Some(Err(broken)));
            }
            if self.is_over() {
                return Poll::Ready(None);
            }
            ready!(self.poll_fate(context));
            ready!(self.pace.poll(context));
            match self.poll_source(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => {
                    self.pace.is_idle();
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.source.is_none() && self.fate.is_none() && self.broken.is_none() && self.ready.is_empty()
    }

    /// Bytes that are still to come, if that is known.
    fn length(&self) -> Option<u64> {
        let ready: usize = self.ready.iter().map(Bytes::len).sum();
        let ready = u64::try_from(ready).unwrap_or(u64::MAX);
        // A guarded stream may gain an error event, so its length is unknown.
        let rest = match &self.source {
            Some(source) if self.guard.is_none() => source.body.size_hint().exact(),
            Some(_) => None,
            None if self.fate.is_none() => Some(0),
            None => None,
        };
        rest.map(|rest| rest + ready)
    }
}

impl<P: Pass> Body for Relay<P> {
    type Data = Bytes;
    type Error = BrokenAnswer;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        if let RelayedAnswer::Open(open) = &mut self.answer {
            return open.poll_frame(context);
        }
        let answer = mem::replace(&mut self.answer, RelayedAnswer::Over);
        Poll::Ready(match answer {
            RelayedAnswer::Whole(answer) => Some(Ok(Frame::data(answer))),
            _ => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.answer {
            RelayedAnswer::Whole(_) => false,
            RelayedAnswer::Open(open) => open.is_over(),
            RelayedAnswer::Tunnel(_) | RelayedAnswer::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = match &self.answer {
            RelayedAnswer::Whole(answer) => Some(u64::try_from(answer.len()).unwrap_or(u64::MAX)),
            RelayedAnswer::Open(open) => open.length(),
            RelayedAnswer::Tunnel(_) | RelayedAnswer::Over => Some(0),
        };
        length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl<P: Pass> fmt::Debug for Relay<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("over", &self.is_end_stream()).finish_non_exhaustive()
    }
}
