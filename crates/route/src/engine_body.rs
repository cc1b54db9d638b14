//! Holds the body of a request to an engine: whole, or still arriving from another host.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};

use super::rope::Rope;
use super::wire_state::WireState;

/// Data for an engine after the head.
pub struct EngineBody {
    content: BodyContent,
    /// The connection that it leaves on.
    wire: Option<WireState>,
}

enum BodyContent {
    Whole(Rope),
    Arriving(Box<ArrivingBody>),
}

/// A body that is passed on while it arrives. Its pieces are kept nowhere.
pub(crate) struct ArrivingBody {
    incoming: Incoming,
    /// Longest wait for the next piece.
    patience: Duration,
    wait: Option<Pin<Box<Sleep>>>,
    fault: Rc<Cell<Option<BodyFault>>>,
    /// Memory that is reserved until the body has gone.
    _reserved: Box<dyn Any>,
}

/// Why a body that was passed on did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    #[error("the request body ended early or was malformed")]
    CutShort,
    #[error("the request body arrived too slowly")]
    TooSlow,
}

impl ArrivingBody {
    pub(super) fn new(incoming: Incoming, patience: Duration, reserved: Box<dyn Any>) -> Self {
        Self { incoming, patience, wait: None, fault: Rc::default(), _reserved: reserved }
    }

    /// Place for the reason why the body did not come to its end.
    pub(super) fn fault(&self) -> Rc<Cell<Option<BodyFault>>> {
        Rc::clone(&self.fault)
    }

    /// Bytes that are still to come.
    pub(super) fn length(&self) -> usize {
        usize::try_from(self.incoming.size_hint().lower()).unwrap_or(usize::MAX)
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let polled = Pin::new(&mut self.incoming).poll_frame(context);
        let fault = match polled {
            Poll::Ready(piece) => {
                self.wait = None;
                match piece {
                    Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                    None => return Poll::Ready(None),
                    Some(Err(_)) => BodyFault::CutShort,
                }
            }
            // It counts only while the engine would take more.
            Poll::Pending => {
                let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(self.patience)));
                std::task::ready!(wait.as_mut().poll(context));
                BodyFault::TooSlow
            }
        };
        self.fault.set(Some(fault));
        Poll::Ready(Some(Err(fault)))
    }
}

impl From<Rope> for EngineBody {
    fn from(rope: Rope) -> Self {
        Self { content: BodyContent::Whole(rope), wire: None }
    }
}

impl From<ArrivingBody> for EngineBody {
    fn from(body: ArrivingBody) -> Self {
        Self { content: BodyContent::Arriving(Box::new(body)), wire: None }
    }
}

impl EngineBody {
    /// Begins a request on this connection, which gets to know when all of the body was taken.
    pub(super) fn leave_on(&mut self, wire: &WireState) {
        wire.begin(!self.is_empty());
        self.wire = Some(wire.clone());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }
}

impl Body for EngineBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = self.get_mut();
        let polled = match &mut this.content {
            BodyContent::Whole(rope) => Poll::Ready(rope.pop().map(|piece| Ok(Frame::data(piece)))),
            BodyContent::Arriving(body) => body.poll_piece(context),
        };
        let failed = matches!(polled, Poll::Pending | Poll::Ready(Some(Err(_))));
        if !failed && this.is_end_stream() {
            this.wire.iter().for_each(WireState::body_taken);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            BodyContent::Whole(rope) => rope.is_empty(),
            BodyContent::Arriving(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Whole(rope) => SizeHint::with_exact(u64::try_from(rope.len()).unwrap_or(u64::MAX)),
            BodyContent::Arriving(body) => body.incoming.size_hint(),
        }
    }
}

impl fmt::Debug for EngineBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBody").field("length", &self.size_hint().exact()).finish_non_exhaustive()
    }
}
