//! Translates an engine's event stream for Ollama's clients while it passes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use plimsoll_ollama::OllamaLines;
use plimsoll_ollama::answer::AnswerError;

use super::bad_gateway;
use crate::HttpProblem;
use crate::body_budget::BodyShare;
use crate::connection::StallLimit;
use crate::limits::Limits;
use crate::model_service::Pass;
use crate::stream::{BrokenAnswer, Relay};

pub(crate) struct OllamaStream<P: Pass> {
    /// Dropped before `after`, so that the request is over by then.
    relay: Option<Relay<P>>,
    lines: OllamaLines,
    _after: AfterAnswer,
}

/// An act that follows when the answer is over or given up.
pub(super) struct AfterAnswer(Option<Box<dyn FnOnce()>>);

impl AfterAnswer {
    pub(super) fn new(act: impl FnOnce() + 'static) -> Self {
        Self(Some(Box::new(act)))
    }
}

impl Drop for AfterAnswer {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}

impl<P: Pass> OllamaStream<P> {
    pub(super) fn new(relay: Relay<P>, lines: OllamaLines, after: AfterAnswer) -> Self {
        Self { relay: Some(relay), lines, _after: after }
    }

    pub(crate) fn stall_limit(&self) -> StallLimit {
        self.relay.as_ref().map(Relay::stall_limit).unwrap_or_default()
    }

    pub(crate) fn poll_lines(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut lines = Vec::new();
        while let Some(relay) = &mut self.relay {
            match ready!(Pin::new(relay).poll_frame(context)) {
                Some(Ok(frame)) => self.lines.feed(&frame.into_data().unwrap_or_default(), &mut lines),
                // The connection to the client ends well: its last line reports the failure.
                Some(Err(BrokenAnswer { .. })) => {
                    self.lines.fail(&AnswerError::EndedEarly, &mut lines);
                    self.relay = None;
                }
                None => {
                    self.lines.end(&mut lines);
                    self.relay = None;
                }
            }
            // A good answer is read to its end, so that its connection can be used again.
            if self.lines.has_failed() {
                self.relay = None;
            }
            if !lines.is_empty() {
                return Poll::Ready(Some(Bytes::from(lines)));
            }
        }
        Poll::Ready(None)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.relay.is_none()
    }
}

/// Collects the rest of an answer, which `share` counts; an error if it is longer than `most` bytes, or there
/// is no memory for it.
pub(super) async fn collect<P: Pass>(
    relay: &mut Relay<P>,
    most: usize,
    share: &BodyShare,
    limits: &Limits,
) -> Result<Vec<u8>, HttpProblem> {
    let mut whole = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut *relay).poll_frame(context)).await {
        let frame: Frame<Bytes> = frame.map_err(|_| bad_gateway(&AnswerError::EndedEarly))?;
        let data = frame.into_data().unwrap_or_default();
        if whole.len() + data.len() > most {
            return Err(bad_gateway(&AnswerError::LongAnswer(most)));
        }
        // Twice, because the translation has as many bytes again.
        share.resize(2 * (whole.len() + data.len()), limits)?;
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}
