//! Body of a request to an engine: whole, or still arriving from another host.

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

/// What is sent to an engine after the head.
pub(crate) enum EngineBody {
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
pub(crate) enum BodyFault {
    #[error("the request body ended early or was malformed")]
    CutShort,
    #[error("the request body arrived too slowly")]
    TooSlow,
}

impl ArrivingBody {
    pub(super) fn new(incoming: Incoming, patience: Duration, reserved: Box<dyn Any>) -> Self {
        Self { incoming, patience, wait: None, fault: Rc::default(), _reserved: reserved }
    }

    /// Where it will be told why the body did not come to its end.
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
        Self::Whole(rope)
    }
}

impl Body for EngineBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match self.get_mut() {
            Self::Whole(rope) => Poll::Ready(rope.pop().map(|piece| Ok(Frame::data(piece)))),
            Self::Arriving(body) => body.poll_piece(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(rope) => rope.len() == 0,
            Self::Arriving(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(rope) => SizeHint::with_exact(u64::try_from(rope.len()).unwrap_or(u64::MAX)),
            Self::Arriving(body) => body.incoming.size_hint(),
        }
    }
}

impl fmt::Debug for EngineBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBody").field("length", &self.size_hint().exact()).finish_non_exhaustive()
    }
}
