//! Accepts HTTP connections up to a maximum number, and closes them at shutdown.
//!
//! A shutdown lets requests in flight finish within a time limit.

use std::cell::Cell;
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
use plimsoll_base::masked;
use plimsoll_nostd::{code, heap};
use plimsoll_process::reading::{MeasuredProcess, command_line};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};

use super::body_budget::BodyBudget;
use super::connection::ClientConnection;
use super::gather::READ_BUFFER;
use super::limits::Limits;
use super::model_service::RequestRouter;
use super::places::Places;
use super::server::HttpServer;
use super::stream::BrokenAnswer;
use plimsoll_task::spawn_local;

/// Connections that wait to be taken. Beyond that the kernel drops requests for one, which clients repeat
/// after a second.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept. It fails if descriptors or memory are missing, and only waiting helps.
const BREATH: Duration = Duration::from_millis(50);

/// Time from the first accept until what only the start needed is given back.
const STARTED: Duration = Duration::from_millis(200);
/// Interval at which freed memory is given back, and what makes a walk over the heap worth its time: closed
/// connections, or bytes of request bodies.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);
const MANY_CLOSED: usize = 64;
const MUCH_RELEASED: u64 = 8 << 20;

/// Errors of listening, such as an address that other machines can reach without permission for that.
#[derive(Debug, thiserror::Error)]
pub enum Listen {
    #[error("cannot listen on {address}: {error}{}", busy(*address, error))]
    Bind { address: SocketAddr, error: io::Error },
    #[error(
        "the address {0} can be reached from other machines, and no API key is set; hint: set [serve] \
            api-keys = \
            [\"…\"] in the configuration (`plimsoll init FOLDER -o plimsoll.toml` or `plimsoll import ollama \
            -o plimsoll.toml` writes one), or pass --open to admit everyone on the network"
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
        let line = masked(&command_line(pid)).join(" ");
        format!("process {pid} (`{}`)", line.chars().take(80).collect::<String>())
    });
    let owner = owner.unwrap_or_else(|| "a process of another user (`sudo ss -ltnp` names it)".to_owned());
    format!("\nhint: the address is in use by {owner}; choose another address with --listen")
}

/// Refuses an address beyond loopback that nothing permits.
pub fn permit(addresses: &[SocketAddr], exposed: bool) -> Result<(), Listen> {
    let beyond = addresses.iter().find(|address| !address.ip().is_loopback() && !exposed);
    beyond.map_or(Ok(()), |address| Err(Listen::Exposed(*address)))
}

/// Binds `addresses`. One beyond loopback requires `exposed`: API keys are set, or the user allowed it.
pub fn bind(addresses: &[SocketAddr], exposed: bool) -> Result<Vec<TcpListener>, Listen> {
    permit(addresses, exposed)?;
    let mut bound = Vec::with_capacity(addresses.len());
    for &address in addresses {
        bound.push(listen(address).map_err(|error| Listen::Bind { address, error })?);
    }
    Ok(bound)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Or the address of a server that has just ended could not be had for a minute.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Takes the next connection of any listener; `next` is the listener that is asked first.
async fn accept(listeners: &[TcpListener], next: &Cell<usize>) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|context| {
        // In turn, so that a crowd at one address does not starve the others.
        let turn = next.get();
        for at in (turn..listeners.len()).chain(0..turn) {
            if let Poll::Ready(accepted) = listeners[at].poll_accept(context) {
                next.set((at + 1) % listeners.len());
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}

/// Gives freed memory back, for ever. A thousand connections leave 20 MiB between blocks that are still in
/// use, and request bodies as much as they had.
async fn release_memory(places: &Places, bodies: &BodyBudget) {
    // Most of the program's pages were read for its start: the command line, the configuration, the first
    // plans.
    tokio::time::sleep(STARTED).await;
    heap::release_free_pages();
    code::release_code_pages();
    let mut released = 0;
    loop {
        tokio::time::sleep(TRIM_INTERVAL).await;
        let closed = places.left().get();
        released += bodies.take_released();
        if closed >= MANY_CLOSED || released >= MUCH_RELEASED || (closed > 0 && places.len() == 0) {
            heap::release_free_pages();
            places.left().set(0);
            released = 0;
        }
    }
}

/// Serves until `shutdown` is done and the last request has ended or run out of time. Runs in a
/// `LocalRuntime` or a `LocalSet`.
pub async fn serve<H: RequestRouter>(
    listeners: Vec<TcpListener>,
    server: Rc<HttpServer<H>>,
    shutdown: impl Future<Output = ()>,
) {
    let limits = server.settings.limits.clone();
    let mut release = pin!(release_memory(&server.places, &server.bodies));
    let (drain, draining) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    let builder = Rc::new(connection_builder(&limits));
    let next = Cell::new(0);
    loop {
        let calm_accept = async {
            server.places.calm().await;
            accept(&listeners, &next).await
        };
        tokio::select! {
            () = &mut shutdown => break,
            () = &mut release => {}
            accepted = calm_accept => match accepted {
                Ok(accepted) => {
                    let (builder, server) = (Rc::clone(&builder), Rc::clone(&server));
                    let hurries = !server.settings.keys.is_empty();
                    let (client, stream) = ClientConnection::open(accepted, &server.places, hurries);
                    let draining = draining.clone();
                    spawn_local(async move {
                        let (its, its_server) = (Rc::clone(&client), Rc::clone(&server));
                        let service = service_fn(move |request| Rc::clone(&its_server).answer(request, Rc::clone(&its)));
                        serve_connection((client, stream), &builder, service, server, draining).await;
                    });
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    drop(listeners);
    let _ = drain.send(true);
    // Connections that are still open then end with the runtime.
    let _ = tokio::time::timeout(limits.drain_time, server.places.at_most(0)).await;
}

pub(super) fn connection_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let head = usize::try_from(limits.head.get()).unwrap_or(usize::MAX);
    builder
        // `ClientConnection::is_over` counts the time.
        .header_read_timeout(None)
        .max_headers(limits.headers)
        // hyper would look for the client's end while an answer is made, with a new read buffer for each
        // request; `ClientConnection::is_over` waits for it anyway.
        .half_close(true)
        .max_buf_size(READ_BUFFER)
        // Clients exist that look for a header of llama-server by its exact letters, `Like-This`. Keeping
        // those of each answer would cost every request.
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
    H: RequestRouter,
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = BrokenAnswer> + 'static,
{
    let limits = server.settings.limits.clone();
    let io = TokioIo::new(stream);
    let mut connection = builder.serve_connection(io, service);
    let (notify, mut reported) = oneshot::channel();
    // A task of its own: in this one, each read and write would poll all the timers and signals as well,
    // which took a tenth of a small request's time.
    let watch = spawn_local({
        let (client, limits) = (Rc::clone(&client), limits.clone());
        async move {
            let is_draining = tokio::select! {
                () = client.is_over(&limits) => false,
                _ = draining.wait_for(|draining| *draining) => true,
            };
            let _ = notify.send(is_draining);
        }
    });
    // How a connection ends is the client's affair: it left, or got an error.
    let is_draining = tokio::select! {
        biased;
        is_draining = &mut reported => is_draining.ok(),
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
            () = client.occupied().place.is_wanted() => {}
        }
    }
}
