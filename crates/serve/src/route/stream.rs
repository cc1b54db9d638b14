//! Stream of an engine's answer to the client.
//!
//! If the engine fails, an event stream ends in an `error` event; for any other answer, the connection is
//! closed.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

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

// The stream holds its pass (the permission to use the engine) until the last byte.
pub(crate) struct Relay<P: Pass> {
    source: Option<StreamSource>,
    /// Held until the answer is over.
    pass: Option<P>,
    /// Pieces that may go to the client and have not yet.
    ready: VecDeque<Bytes>,
    guard: Option<(EventGuard, EventDialect)>,
    /// The use of the client's key by this request.
    key_use: Option<Box<KeyUse>>,
    /// Last bytes of the answer; none where there is no answer, or where it came in one piece.
    tail: Option<PromptTail>,
    /// Set when the engine broke off; the future returns the reason.
    fate: Option<Fate>,
    stall_limit: StallLimit,
    /// The end of HTTP on the client's connection, which takes it.
    tunnel: Option<Tunnel>,
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
        if dialect.is_some() {
            pass.streams();
        }
        let stall_limit = pass.stall_limit();
        let mut relay = Self {
            source: Some(source),
            pass: Some(pass),
            key_use,
            // `EventGuard::feed` usually passes two pieces at most: what it held back, and the new one.
            ready: VecDeque::with_capacity(2),
            guard: dialect.map(|dialect| (EventGuard::default(), dialect)),
            tail: None,
            fate: None,
            stall_limit,
            tunnel: None,
        };
        // Most answers without a stream come in one piece, whose end need not be kept.
        if relay.is_read() {
            let tokens = AnswerTokens::in_end_of(&first);
            relay.take(first);
            relay.finish(tokens);
        } else {
            relay.tail = Some(PromptTail::default());
            relay.take(first);
        }
        relay
    }

    /// An answer without a body, after which the connection is the tunnel's.
    pub(crate) fn upgraded(tunnel: Tunnel) -> Self {
        Self {
            source: None,
            pass: None,
            key_use: None,
            ready: VecDeque::new(),
            guard: None,
            tail: None,
            fate: None,
            stall_limit: StallLimit::default(),
            tunnel: Some(tunnel),
        }
    }

    pub(crate) fn take_tunnel(&mut self) -> Option<Tunnel> {
        self.tunnel.take()
    }

    /// The time that the client may take nothing of this answer.
    pub(crate) fn stall_limit(&self) -> StallLimit {
        self.stall_limit.clone()
    }

    fn take(&mut self, data: Bytes) {
        if let Some(tail) = &mut self.tail {
            tail.feed(&data);
        }
        self.key_use.iter_mut().for_each(|key_use| key_use.passed(data.len()));
        match &mut self.guard {
            _ if data.is_empty() => {}
            Some((guard, _)) => guard.feed(data, &mut self.ready),
            None => self.ready.push_back(data),
        }
    }

    /// True if the engine has sent the last byte. A body with a length ends with it, before a further read says so.
    fn is_read(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.body.is_end_stream())
    }

    fn kept_tokens(&self) -> Option<AnswerTokens> {
        self.tail.as_ref().and_then(PromptTail::tokens)
    }

    fn finish(&mut self, tokens: Option<AnswerTokens>) {
        if let (Some(source), Some(pass)) = (self.source.take(), self.pass.take()) {
            // First, because `finished` may let the next request in, which then finds an idle connection.
            pass.upstream().give_back(source.wire);
            self.key_use
                .take()
                .into_iter()
                .for_each(|key_use| key_use.answered(tokens.map(|tokens| tokens.total)));
            pass.finished(tokens);
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
        // Asked before the client is told: only the supervisor knows why the engine went away.
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
                    self.finish(self.kept_tokens());
                }
            }
            Some(Err(error)) => self.break_off(error)?,
            None => self.finish(self.kept_tokens()),
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

impl<P: Pass> Body for Relay<P> {
    type Data = Bytes;
    type Error = BrokenAnswer;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        loop {
            // Pieces first: an error event is queued behind what came before it.
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if self.is_end_stream() {
                return Poll::Ready(None);
            }
            ready!(self.poll_fate(context));
            if let Err(error) = ready!(self.poll_source(context)) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none() && self.fate.is_none() && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let ready: usize = self.ready.iter().map(Bytes::len).sum();
        let ready = u64::try_from(ready).unwrap_or(u64::MAX);
        // A guarded stream may gain an error event, so its length is unknown.
        let rest = match &self.source {
            Some(source) if self.guard.is_none() => source.body.size_hint().exact(),
            Some(_) => None,
            None if self.fate.is_none() => Some(0),
            None => None,
        };
        rest.map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + ready))
    }
}

impl<P: Pass> fmt::Debug for Relay<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("over", &self.source.is_none())
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}
