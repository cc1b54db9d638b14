//! Tracks the state of a client's connection: idle, in use, or stalled.
//!
//! A connection is closed if its client has left or stopped reading, or if another client needs its place.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_scheduler::ClientId;
use rustix::io::Errno;
use rustix::net;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::auth::ShownKey;
use super::client;
use super::limits::Limits;
use super::places::{OccupiedPlace, Places};
use super::small_write::joined;
use super::tunnel::Tunnel;

/// A client that takes nothing of its answer for this long is given up.
const STALL: Duration = Duration::from_secs(60);
/// Interval at which the limit of a stalled answer is read again, because it may have been shortened.
const GLANCE: Duration = Duration::from_millis(500);
/// The same for a client that has been let in, once another one needs its place.
const STALL_OF_LEAVING: Duration = Duration::from_secs(2);
/// Size of a client's send buffer. The kernel reports room only once a third of it is free, so with a buffer
/// of megabytes a client that reads slowly would look like one that does not read.
const SEND_BUFFER: usize = 256 * 1024;
/// TCP keepalive: idle time before the first probe, time between probes, and their number.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

// An unread answer would keep its model busy.
/// Time for which a client may read nothing of its answer. Clones share it, so that it can be shortened while
/// another request waits for the memory that the answer occupies.
#[derive(Clone, Debug)]
pub struct StallLimit(Rc<Cell<Duration>>);

impl Default for StallLimit {
    fn default() -> Self {
        Self::new(STALL)
    }
}

impl StallLimit {
    pub fn new(limit: Duration) -> Self {
        Self(Rc::new(Cell::new(limit)))
    }

    /// Sets another limit, for answers under way as well.
    pub fn set(&self, limit: Duration) {
        self.0.set(limit);
    }
}

/// State of one client's connection.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    /// The half for writing; what is asked of the socket is asked through it, too.
    socket: OwnedWriteHalf,
    occupied: OccupiedPlace,
    stalled_since: Cell<Option<Instant>>,
    stall_limit: RefCell<StallLimit>,
    /// Address behind the bytes of the last read, and the room that its buffer has there.
    last_read: Cell<(usize, usize)>,
    pub(crate) shown_key: ShownKey,
    /// Who is not let in has less time for a request.
    hurries: bool,
    /// State of the connection after the answer that upgrades it.
    tunnel: RefCell<Option<Tunnel>>,
    close: Notify,
}

impl ClientConnection {
    /// The state, and the stream that hyper reads and writes.
    pub(super) fn open(
        (stream, from): (TcpStream, SocketAddr),
        places: &Rc<Places>,
        hurries: bool,
    ) -> (Rc<Self>, ClientStream) {
        prepare(&stream);
        let (reader, socket) = stream.into_split();
        let connection = Rc::new(Self {
            socket,
            occupied: places.enter(client::at_address(from.ip())),
            stalled_since: Cell::new(None),
            stall_limit: RefCell::default(),
            last_read: Cell::default(),
            shown_key: ShownKey::default(),
            hurries,
            tunnel: RefCell::default(),
            close: Notify::new(),
        });
        (Rc::clone(&connection), ClientStream { connection, reader })
    }

    /// The client of the present request.
    pub(crate) fn client(&self) -> ClientId {
        self.occupied.place.client()
    }

    /// Its place among those of the listener.
    pub(super) fn occupied(&self) -> &OccupiedPlace {
        &self.occupied
    }

    /// Marks it as in use until the guard is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> RequestGuard {
        self.occupied.place.begin();
        RequestGuard(Rc::clone(self))
    }

    pub(crate) fn limit_stalls(&self, limit: StallLimit) {
        self.stall_limit.replace(limit);
    }

    /// The room behind a piece in its read buffer; `None` for a piece before the last read.
    pub(crate) fn spare_behind(&self, piece: &[u8]) -> Option<usize> {
        let (end, spare) = self.last_read.get();
        (piece.as_ptr_range().end.addr() == end).then_some(spare)
    }

    pub(crate) fn upgrade_to(&self, tunnel: Tunnel) {
        self.tunnel.replace(Some(tunnel));
    }

    pub(crate) fn take_tunnel(&self) -> Option<Tunnel> {
        self.tunnel.take()
    }

    pub(crate) fn close(&self) {
        self.close.notify_one();
    }

    /// Ends when the client has closed its side.
    async fn has_left(&self) {
        loop {
            // Of what the kernel reports, this interest sees urgent bytes, for which nobody asks it, and the
            // end (`io/ready.rs: from_interest @ tokio 1.54`). That of `READABLE` would wake it for each
            // request.
            match self.socket.ready(Interest::PRIORITY).await {
                Ok(ready) if !ready.is_read_closed() => sleep(GLANCE).await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Ends when the connection has to be closed.
    ///
    /// DECISION: the time for a head is counted here, because hyper makes a timer for each request. A
    /// deadline that passes while a request is in flight is only replaced; so none is set when a request
    /// ends, and none is missed.
    pub(crate) async fn is_over(&self, limits: &Limits) {
        let mut left = pin!(self.has_left());
        let place = &self.occupied.place;
        loop {
            let is_slow = || !self.hurries || place.is_settled();
            let idle_limit = || if is_slow() { limits.head_time } else { limits.keyless_time };
            let deadline = place.idle_since.get().unwrap_or_else(Instant::now) + idle_limit();
            tokio::select! {
                () = self.close.notified() => return,
                () = &mut left => return,
                () = place.changed.notified() => {}
                () = sleep_until(deadline) => {
                    if place.idle_since.get().is_some_and(|since| since.elapsed() >= idle_limit()) {
                        return;
                    }
                }
                () = sleep(GLANCE), if self.stalled_since.get().is_some() => {}
            }
            // Read in every round, because the scheduler may shorten it while the answer is under way.
            let limit = self.stall_limit.borrow().0.get();
            let limit = match (place.is_leaving(), place.is_settled()) {
                (true, _) if place.is_cut() || place.idle_since.get().is_some() => return,
                (true, false) => Duration::ZERO,
                (true, true) => limit.min(STALL_OF_LEAVING),
                (false, _) => limit,
            };
            if self.stalled_since.get().is_some_and(|since| since.elapsed() >= limit) {
                return;
            }
        }
    }

    fn wrote<T>(&self, polled: Poll<T>) -> Poll<T> {
        match polled {
            Poll::Ready(_) => self.stalled_since.set(None),
            // hyper writes only when it has bytes, so this means that the client's window is full.
            Poll::Pending if self.stalled_since.get().is_none() => {
                self.stalled_since.set(Some(Instant::now()));
                self.occupied.place.changed.notify_one();
            }
            Poll::Pending => {}
        }
        polled
    }
}

/// Marks a request in flight on its connection until it is dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard(Rc<ClientConnection>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        // An answer may still lie in the send buffer; closing flushes it.
        self.0.occupied.place.end();
    }
}

fn prepare(stream: &TcpStream) {
    // Without it an answer may sit 40 ms in the kernel (delayed acknowledgements).
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER);
    // A peer whose machine is gone sends no FIN. Sockets that refuse these options still work.
    let (idle, pause, questions) = KEEPALIVE;
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, idle);
    let _ = sockopt::set_tcp_keepintvl(stream, pause);
    let _ = sockopt::set_tcp_keepcnt(stream, questions);
    // Later than a stall, so that the limit above is the one that decides.
    let gone = u32::try_from((STALL + idle).as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(stream, gone);
}

/// A client's socket, whose writes record whether the client still reads.
#[derive(Debug)]
pub(crate) struct ClientStream {
    connection: Rc<ClientConnection>,
    /// Its `poll_read` takes a short read for the last one, where `try_read` would ask the kernel once more.
    reader: OwnedReadHalf,
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.reader).poll_read(context, buffer);
        let end = buffer.filled().as_ptr_range().end.addr();
        self.connection.last_read.set((end, buffer.remaining()));
        polled
    }
}

impl ClientStream {
    fn poll_try(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let connection = &self.connection;
        let socket: &TcpStream = connection.socket.as_ref();
        let polled = loop {
            match socket.poll_write_ready(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
            match write(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => break Poll::Ready(written),
            }
        };
        connection.wrote(polled)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(context, |stream| {
            joined(pieces, |message| stream.try_write(message))
                .unwrap_or_else(|| stream.try_write_vectored(pieces))
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The kernel takes what was written; there is no buffer of ours.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match net::shutdown(self.connection.socket.as_ref(), net::Shutdown::Write) {
            // The client has gone already.
            Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            outcome => Poll::Ready(Ok(outcome?)),
        }
    }
}
