//! Limit on the bytes that one read takes from an engine's socket.
//!
//! hyper's read buffer grows to the size of the largest read. Without a limit, a read of many events at once would
//! enlarge the buffer to several times what one event needs.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use plimsoll_launch::EngineStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::small_write::joined;

/// The limit of one connection, shared with its reader. Zero is no limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadLimit(Rc<Cell<usize>>);

impl ReadLimit {
    pub(super) fn set(&self, bytes: usize) {
        self.0.set(bytes);
    }
}

/// A connection to an engine, read within a [`ReadLimit`].
#[derive(Debug)]
pub(crate) struct LimitedStream {
    pub(super) stream: EngineStream,
    pub(super) limit: ReadLimit,
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let most = this.limit.0.get();
        if most == 0 || buffer.remaining() <= most {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = &mut self.get_mut().stream;
        match joined(slices, |message| Pin::new(&mut *stream).poll_write(context, message)) {
            Some(written) => written,
            None => Pin::new(stream).poll_write_vectored(context, slices),
        }
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
