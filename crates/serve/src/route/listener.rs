//! HTTP listener with a limited number of connections, and its shutdown.
//!
//! At the limit, a new connection replaces an idle one. A shutdown lets requests in flight finish within a
//! time limit.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use plimsoll_nostd::{code, heap};
use plimsoll_probe::process::{MeasuredProcess, command_line};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot, watch};

use super::body::BodyBudget;
use super::connection::ClientConnection;
use super::gather::READ_BUFFER;
use super::limits::Limits;
use super::model_service::ModelService;
use super::server::HttpServer;
use super::stream::BrokenAnswer;
use crate::task::spawn_local;

/// Pause after a failed accept. It fails if descriptors or memory are missing, and only waiting helps.
const BREATH: Duration = Duration::from_millis(50);
/// Interval at which a new connection at the limit looks again for one that may be closed for it.
const GLANCE: Duration = Duration::from_millis(250);

/// Time from the first accept until what only the start needed is given back.
const STARTED: Duration = Duration::from_millis(200);
/// Interval at which freed memory is given back, and what makes a walk over the heap worth its time: closed
/// connections, or bytes of request bodies.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);
const MANY_CLOSED: usize = 64;
const MUCH_RELEASED: u64 = 8 << 20;

/// A connection is not closed for others before it has been idle for this long.
const GRACE: Duration = Duration::from_secs(1);

/// Errors of listening, such as an address that other machines can reach without permission for that.
#[derive(Debug, thiserror::Error)]
pub enum Listen {
    #[error("cannot listen on {address}: {error}{}", busy(*address, error))]
    Bind { address: SocketAddr, error: io::Error },
    #[error(
        "the address {0} can be reached from other machines, and no API key is set; hint: set [serve] \
            api-keys = \
            [\"…\"] in the configuration, or pass --open to admit everyone on the network"
    )]
    Exposed(SocketAddr),
}

/// A hint for an address that another program has. The kernel shows processes of other users to root only.
fn busy(address: SocketAddr, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::AddrInUse {
        return String::new();
    }
    let owner = MeasuredProcess::listening_on(address.port()).map(|process| process.pid);
    let owner = owner.map(|pid| {
        format!("process {pid} (`{}`)", command_line(pid).join(" ").chars().take(80).collect::<String>())
    });
    let owner = owner.unwrap_or_else(|| "a process of another user (`sudo ss -ltnp` names it)".to_owned());
    format!("\nhint: the address is in use by {owner}; choose another address with --listen")
}

/// Refuses an address beyond loopback that nothing permits.
pub(crate) fn permit(addresses: &[SocketAddr], exposed: bool) -> Result<(), Listen> {
    let beyond = addresses.iter().find(|address| !address.ip().is_loopback() && !exposed);
    beyond.map_or(Ok(()), |address| Err(Listen::Exposed(*address)))
}

/// Binds `addresses`. One beyond loopback requires `exposed`: API keys are set, or the user allowed it.
pub(crate) async fn bind(addresses: &[SocketAddr], exposed: bool) -> Result<Vec<TcpListener>, Listen> {
    permit(addresses, exposed)?;
    let mut bound = Vec::with_capacity(addresses.len());
    for &address in addresses {
        bound.push(TcpListener::bind(address).await.map_err(|error| Listen::Bind { address, error })?);
    }
    Ok(bound)
}

/// Takes the next connection of any listener; `next` is the listener that is asked first.
async fn accept(listeners: &[TcpListener], next: &Cell<usize>) -> io::Result<TcpStream> {
    poll_fn(|context| {
        // In turn, so that a crowd at one address does not starve the others.
        let turn = next.get();
        for at in (turn..listeners.len()).chain(0..turn) {
            if let Poll::Ready(accepted) = listeners[at].poll_accept(context) {
                next.set((at + 1) % listeners.len());
                return Poll::Ready(accepted.map(|(stream, _)| stream));
            }
        }
        Poll::Pending
    })
    .await
}

// At the limit, the longest idle connection is replaced or, if none is idle, the one with the slowest request
// body.
/// The client connections that are open now.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    all: RefCell<Vec<Rc<ClientConnection>>>,
    /// Connections that were closed since memory was given back.
    closed: Cell<usize>,
    changed: Notify,
}

/// Place of a client among the open connections, released when dropped.
pub(super) struct OpenGuard(Rc<OpenConnections>, Rc<ClientConnection>);

impl OpenConnections {
    pub(super) fn enter(self: &Rc<Self>, connection: &Rc<ClientConnection>) -> OpenGuard {
        self.all.borrow_mut().push(Rc::clone(connection));
        OpenGuard(Rc::clone(self), Rc::clone(connection))
    }

    fn count(&self) -> usize {
        self.all.borrow().len()
    }

    pub(super) async fn at_most(&self, count: usize) {
        while self.count() > count {
            self.changed.notified().await;
        }
    }

    /// Makes room for one more connection and waits for it.
    pub(super) async fn make_room<H: ModelService>(&self, server: &HttpServer<H>) {
        let limits = &server.settings.limits;
        let keyless = self.all.borrow().iter().filter(|one| !one.has_key.get()).count();
        // Half of the places stay for clients that have shown a key, however many others come.
        if keyless >= (limits.connections / 2).max(1) {
            self.close_longest_idle(|one| !one.has_key.get());
        }
        while self.count() >= limits.connections {
            let closed = self.close_longest_idle(|one| !one.has_key.get())
                || self.close_longest_idle(|_| true)
                || server.bodies.drop_slowest(limits.body_time);
            let pause = if closed { Duration::ZERO } else { GLANCE };
            let _ = tokio::time::timeout(pause.max(BREATH), self.changed.notified()).await;
        }
    }

    /// Gives freed memory back, for ever. A thousand connections leave 20 MiB between blocks that are still in use, and
    /// request bodies as much as they had.
    async fn release_memory(&self, bodies: &BodyBudget) {
        // Most of the program's pages were read for its start: the command line, the configuration, the first plans.
        tokio::time::sleep(STARTED).await;
        heap::release_free_pages();
        code::release_code_pages();
        let mut released = 0;
        loop {
            tokio::time::sleep(TRIM_INTERVAL).await;
            let closed = self.closed.get();
            released += bodies.take_released();
            if closed >= MANY_CLOSED || released >= MUCH_RELEASED || (closed > 0 && self.count() == 0) {
                heap::release_free_pages();
                self.closed.set(0);
                released = 0;
            }
        }
    }

    fn close_longest_idle(&self, may_go: impl Fn(&ClientConnection) -> bool) -> bool {
        let all = self.all.borrow();
        let idle = all.iter().filter(|one| may_go(one));
        let idle = idle.filter_map(|one| Some((one.idle_since()?, one)));
        // A request that has just arrived may lie unread in its socket.
        let idle = idle.filter(|(since, _)| since.elapsed() >= GRACE);
        let longest = idle.min_by_key(|(since, _)| *since);
        longest.inspect(|(_, one)| one.close()).is_some()
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.all.borrow_mut().retain(|one| !Rc::ptr_eq(one, &self.1));
        self.0.closed.set(self.0.closed.get() + 1);
        self.0.changed.notify_one();
    }
}

/// Serves until `shutdown` is done and the last request has ended or run out of time. Runs in a
/// `LocalRuntime` or a `LocalSet`.
pub(crate) async fn serve<H: ModelService>(
    listeners: Vec<TcpListener>,
    server: Rc<HttpServer<H>>,
    shutdown: impl Future<Output = ()>,
) {
    let limits = server.settings.limits.clone();
    let open = Rc::new(OpenConnections::default());
    let mut release = pin!(open.release_memory(&server.bodies));
    let (drain, draining) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    let builder = Rc::new(connection_builder(&limits));
    let next = Cell::new(0);
    loop {
        // Room is made only once a newcomer is there: until then an idle connection costs nothing.
        let accepted = async {
            let accepted = accept(&listeners, &next).await;
            open.make_room(&server).await;
            accepted
        };
        tokio::select! {
            () = &mut shutdown => break,
            () = &mut release => {}
            accepted = accepted => match accepted {
                Ok(stream) => {
                    let (builder, server) = (Rc::clone(&builder), Rc::clone(&server));
                    let (client, stream) = ClientConnection::open(stream, server.settings.keys.is_empty());
                    let place = open.enter(&client);
                    let draining = draining.clone();
                    spawn_local(async move {
                        let (its, its_server) = (Rc::clone(&client), Rc::clone(&server));
                        let service = service_fn(move |request| Rc::clone(&its_server).answer(request, Rc::clone(&its)));
                        serve_connection((client, stream), &builder, service, server, draining).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    drop(listeners);
    let _ = drain.send(true);
    // What is still running then is ended with the runtime.
    let _ = tokio::time::timeout(limits.drain_time, open.at_most(0)).await;
}

pub(super) fn connection_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let head = usize::try_from(limits.head.get()).unwrap_or(usize::MAX);
    builder
        // `ClientConnection::is_over` counts the time.
        .header_read_timeout(None)
        .max_headers(limits.headers)
        // hyper would look for the client's end while an answer is made, with a new read buffer for each request;
        // `ClientConnection::is_over` waits for it anyway.
        .half_close(true)
        .max_buf_size(READ_BUFFER)
        // Clients exist that look for a header of llama-server by its exact letters, `Like-This`. Keeping those of
        // each answer would cost every request.
        .title_case_headers(true)
        .max_header_size(head);
    builder
}

/// Serves the requests of one connection, whose bytes are those of `stream`.
pub(super) async fn serve_connection<H, I, S, B>(
    (client, stream): (Rc<ClientConnection>, I),
    builder: &http1::Builder,
    service: S,
    server: Rc<HttpServer<H>>,
    mut draining: watch::Receiver<bool>,
) where
    H: ModelService,
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = BrokenAnswer> + 'static,
{
    let limits = server.settings.limits.clone();
    let io = TokioIo::new(stream);
    let mut connection = builder.serve_connection(io, service);
    let (tell, mut told) = oneshot::channel();
    // A task of its own: in this one, each read and write would poll all the timers and signals as well, which
    // took a tenth of a small request's time.
    let watch = spawn_local({
        let (client, limits) = (Rc::clone(&client), limits.clone());
        async move {
            let is_draining = tokio::select! {
                () = client.is_over(&limits) => false,
                _ = draining.wait_for(|draining| *draining) => true,
            };
            let _ = tell.send(is_draining);
        }
    });
    // How a connection ends is the client's affair: it left, or it was told.
    let is_draining = tokio::select! {
        biased;
        is_draining = &mut told => is_draining.ok(),
        _ = &mut connection => None,
    };
    watch.abort();
    if is_draining == Some(true) {
        Pin::new(&mut connection).graceful_shutdown();
        return tokio::select! {
            _ = connection => {}
            () = client.is_over(&limits) => {}
        };
    }
    if let Some(tunnel) = client.take_tunnel() {
        let _in_use = client.begin();
        let parts = connection.into_parts();
        // A websocket has no end of its own, and the server's end would wait for it.
        tokio::select! {
            // How it ended is known to both sides.
            _ = tunnel.join(parts.io.into_inner(), parts.read_buf) => {}
            () = server.ended() => {}
        }
    }
}
