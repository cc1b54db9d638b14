//! Accepts connections, a bounded number at once, and lets them finish at the end.
//!
//! One task per connection on the one thread; its requests run inside it. At the bound nothing more is
//! accepted and newcomers wait in the kernel's backlog. A shutdown lets requests in flight finish, closes idle
//! connections at once, and ends what is left when the time is over.

use std::cell::Cell;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_scheduler::ClientId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use super::harbor::Harbor;
use super::limits::Limits;
use super::server::Server;

/// Accepting failed for want of descriptors or memory: waiting a little is all that helps.
const BREATH: Duration = Duration::from_millis(50);

/// An address that others can reach was asked for without saying so.
#[derive(Debug, thiserror::Error)]
pub enum Listen {
    #[error("cannot listen on {address}: {error}")]
    Bind { address: SocketAddr, error: io::Error },
    #[error(
        "{0} can be reached from other machines, and no API key is set; hint: set one in the configuration, or say --open if everybody on the network may use it"
    )]
    Exposed(SocketAddr),
}

/// Binds `address`. One beyond loopback needs `exposed`: keys are set, or the user said so.
pub(crate) async fn bind(address: SocketAddr, exposed: bool) -> Result<TcpListener, Listen> {
    if !address.ip().is_loopback() && !exposed {
        return Err(Listen::Exposed(address));
    }
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| Listen::Bind { address, error })
}

/// Connections open now.
#[derive(Debug, Default)]
struct Open {
    count: Cell<usize>,
    changed: Notify,
}

/// One of them.
struct Seat(Rc<Open>);

impl Open {
    fn seat(self: &Rc<Self>) -> Seat {
        self.count.set(self.count.get() + 1);
        Seat(Rc::clone(self))
    }

    async fn at_most(&self, count: usize) {
        while self.count.get() > count {
            self.changed.notified().await;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.changed.notify_one();
    }
}

/// Serves until `shutdown` is done and the last request has ended or run out of time. Runs in a `LocalRuntime` or a `LocalSet`.
pub(crate) async fn serve<H: Harbor>(
    listener: TcpListener,
    server: Rc<Server<H>>,
    shutdown: impl Future<Output = ()>,
) {
    let limits = server.settings.limits.clone();
    let open = Rc::new(Open::default());
    let (drain, draining) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    let connection = Rc::new(connection_builder(&limits));
    loop {
        let accepted = async {
            open.at_most(limits.connections.saturating_sub(1)).await;
            listener.accept().await
        };
        tokio::select! {
            () = &mut shutdown => break,
            accepted = accepted => match accepted {
                Ok((stream, _)) => {
                    let (connection, server) = (Rc::clone(&connection), Rc::clone(&server));
                    let seat = open.seat();
                    let draining = draining.clone();
                    tokio::task::spawn_local(async move {
                        serve_connection(stream, &connection, server, draining).await;
                        drop(seat);
                    });
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    drop(listener);
    let _ = drain.send(true);
    // What is still running then is ended with the runtime.
    let _ = tokio::time::timeout(limits.drain_time, open.at_most(0)).await;
}

fn connection_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let head = usize::try_from(limits.head.get()).unwrap_or(usize::MAX);
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(limits.headers)
        .max_header_size(head);
    builder
}

/// Identifies a client by its address; on the loopback, where all clients share one, by its connection.
fn client_of(stream: &TcpStream) -> ClientId {
    let mut hasher = DefaultHasher::new();
    match stream.peer_addr() {
        Ok(peer) if !peer.ip().is_loopback() => peer.ip().hash(&mut hasher),
        peer => peer.ok().hash(&mut hasher),
    }
    ClientId(hasher.finish())
}

async fn serve_connection<H: Harbor>(
    stream: TcpStream,
    builder: &http1::Builder,
    server: Rc<Server<H>>,
    mut draining: watch::Receiver<bool>,
) {
    // Without it an answer may sit 40 ms in the kernel; a socket that refuses it still works.
    let _ = stream.set_nodelay(true);
    let client = client_of(&stream);
    let service = service_fn(move |mut request| {
        request.extensions_mut().insert(client);
        Rc::clone(&server).answer(request)
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // How a connection ends is the client's affair: it left, or it was told.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        _ = draining.wait_for(|draining| *draining) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
