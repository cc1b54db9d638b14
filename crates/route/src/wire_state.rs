//! Tracks a connection to an engine: limits its reads, and knows how much of a request was sent.
//!
//! hyper's read buffer grows to the size of the largest read. Without a limit, a read of many events at once
//! would enlarge the buffer to several times what one event needs.
//!
//! DECISION: interim responses (1xx) are bounded by their bytes. hyper reads on over them by itself, for as
//! long as the engine sends some.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use plimsoll_http::BoxTransport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::small_write::joined;

/// Most bytes of one read of an answer. hyper's buffer is at most twice that. A client that reads nothing
/// leaves both unread, so this bounds the memory of a thousand of them.
const ANSWER_READ: usize = 64 * 1024;
/// The same of an event stream. Events are small.
const EVENTS_READ: usize = 32 * 1024;
/// The most bytes before an answer that does not begin with its status: four thousand interim responses.
const MOST_INTERIM: usize = 128 * 1024;
/// The most of one read of them.
const INTERIM_READ: usize = 16 * 1024;

/// The state of one connection, shared by its owner, its stream and the body that is sent on it.
#[derive(Clone, Debug)]
pub(crate) struct WireState(Rc<StateCells>);

#[derive(Debug)]
struct StateCells {
    /// The most bytes of one read.
    read_limit: Cell<usize>,
    /// How much may still be read before the answer; `None` once it is there.
    interim_left: Cell<Option<usize>>,
    /// A part of the request's body is still to be taken.
    has_unsent_body: Cell<bool>,
    /// The socket has not taken all that was written last.
    is_blocked: Cell<bool>,
}

impl Default for WireState {
    fn default() -> Self {
        Self(Rc::new(StateCells {
            read_limit: Cell::new(ANSWER_READ),
            interim_left: Cell::default(),
            has_unsent_body: Cell::default(),
            is_blocked: Cell::default(),
        }))
    }
}

impl WireState {
    pub(super) fn begin(&self, has_body: bool) {
        // The answer before may have been an event stream.
        self.0.read_limit.set(ANSWER_READ);
        self.0.interim_left.set(Some(MOST_INTERIM));
        self.0.has_unsent_body.set(has_body);
    }

    /// The answer is there.
    pub(super) fn answered(&self, is_event_stream: bool) {
        self.0.interim_left.set(None);
        self.0.read_limit.set(if is_event_stream { EVENTS_READ } else { ANSWER_READ });
    }

    /// The last piece of the request's body was taken.
    pub(super) fn body_taken(&self) {
        self.0.has_unsent_body.set(false);
    }

    /// True if all of the request is with the engine's socket.
    pub(super) fn is_written(&self) -> bool {
        !self.0.has_unsent_body.get() && !self.0.is_blocked.get()
    }

    /// Notes what the first read or a further one before the answer has brought.
    fn read_before_answer(&self, left: usize, new: &[u8]) {
        let is_final = left == MOST_INTERIM
            && matches!(new, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', b'2'..=b'5', ..]);
        self.0.interim_left.set((!is_final).then(|| left.saturating_sub(new.len())));
    }

    fn wrote(&self, polled: Poll<io::Result<usize>>, length: usize) -> Poll<io::Result<usize>> {
        self.0.is_blocked.set(!matches!(polled, Poll::Ready(Ok(written)) if written == length));
        polled
    }
}

/// A connection to an engine, read within the limits of its [`WireState`].
#[derive(Debug)]
pub(crate) struct LimitedStream {
    pub(super) stream: BoxTransport,
    pub(super) state: WireState,
}

impl LimitedStream {
    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() <= most {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let most = match this.state.0.interim_left.get() {
            Some(0) => {
                return Poll::Ready(Err(io::Error::other(
                    "the engine sent interim responses (status 1xx), but no answer",
                )));
            }
            Some(left) if left < MOST_INTERIM => INTERIM_READ,
            _ => this.state.0.read_limit.get(),
        };
        let before = buffer.filled().len();
        ready!(this.poll_part(context, buffer, most))?;
        if let Some(left) = this.state.0.interim_left.get() {
            this.state.read_before_answer(left, &buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.state.wrote(polled, bytes.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let stream = &mut this.stream;
        let polled = match joined(slices, |message| Pin::new(&mut *stream).poll_write(context, message)) {
            Some(written) => written,
            None => Pin::new(stream).poll_write_vectored(context, slices),
        };
        this.state.wrote(polled, slices.iter().map(|slice| slice.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
