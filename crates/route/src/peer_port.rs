//! Listens for other hosts of the fleet, with TLS if the hosts have certificates.
//!
//! It serves no browser pages and accepts no API keys of clients. Clients with slow handshakes can only
//! displace each other, not a connected host.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use plimsoll_identity::PeerCertificate;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::connection::ClientConnection;
use super::listener::{connection_builder, serve_connection};
use super::model_service::RequestRouter;
use super::peer::{Peer, PeerGate};
use super::places::Places;
use super::server::HttpServer;
use plimsoll_task::spawn_local;

/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at a time: one more takes the place of the oldest.
const MOST_HANDSHAKES: usize = 64;
/// Pause after a failed accept, as descriptors are missing then.
const BREATH: Duration = Duration::from_millis(50);

/// Bytes of another host, within TLS or plain: one type, so that the program has one server for both.
trait PeerStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> PeerStream for T {}

struct PeerPort<H: RequestRouter> {
    server: Rc<HttpServer<H>>,
    gate: Rc<dyn PeerGate>,
    builder: http1::Builder,
    places: Rc<Places>,
    handshakes: RefCell<VecDeque<Rc<Notify>>>,
    /// Connections with certificates, so that a revocation ends them.
    certified: RefCell<Vec<(PeerCertificate, Rc<ClientConnection>)>>,
}

/// Serves other hosts until `shutdown` is done and their last request has ended or run out of time.
pub async fn serve_peers<H: RequestRouter>(
    listener: TcpListener,
    server: Rc<HttpServer<H>>,
    gate: Rc<dyn PeerGate>,
    shutdown: impl Future<Output = ()>,
) {
    let limits = server.settings.limits.clone();
    let mut revocations = gate.revocations();
    let port = Rc::new(PeerPort {
        builder: connection_builder(&limits),
        places: Places::new(limits.connections),
        handshakes: RefCell::default(),
        certified: RefCell::default(),
        server,
        gate,
    });
    let (drain, draining) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Ok(()) = revocations.changed() => port.close_revoked(),
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let (port, draining) = (Rc::clone(&port), draining.clone());
                    spawn_local(async move { port.take(stream, from, draining).await });
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    drop(listener);
    let _ = drain.send(true);
    let _ = timeout(limits.drain_time, port.places.at_most(0)).await;
}

impl<H: RequestRouter> PeerPort<H> {
    async fn take(self: Rc<Self>, stream: TcpStream, from: SocketAddr, draining: watch::Receiver<bool>) {
        // Without a certificate it is idle for a short time only, until a request shows that it is a host.
        let (client, stream) = ClientConnection::open((stream, from), &self.places, true);
        let from = from.ip();
        let Some(tls) = self.gate.tls() else {
            return self.serve(client, Box::new(stream), None, from, draining).await;
        };
        let dropped = Rc::new(Notify::new());
        self.begin_handshake(&dropped);
        let shaken = tokio::select! {
            shaken = timeout(HANDSHAKE, tls.accept(stream)) => shaken.ok(),
            () = dropped.notified() => None,
        };
        self.handshakes.borrow_mut().retain(|other| !Rc::ptr_eq(other, &dropped));
        match shaken {
            Some(Ok((stream, shown))) => self.serve(client, Box::new(stream), shown, from, draining).await,
            Some(Err(refused)) => self.gate.refused(Some(from), &refused),
            None => self.gate.refused(Some(from), &"the TLS handshake took too long"),
        }
    }

    fn begin_handshake(&self, dropped: &Rc<Notify>) {
        let mut handshakes = self.handshakes.borrow_mut();
        handshakes.push_back(Rc::clone(dropped));
        if handshakes.len() > MOST_HANDSHAKES {
            handshakes.pop_front().into_iter().for_each(|oldest| oldest.notify_one());
        }
    }

    async fn serve(
        &self,
        client: Rc<ClientConnection>,
        stream: Box<dyn PeerStream>,
        shown: Option<PeerCertificate>,
        from: IpAddr,
        draining: watch::Receiver<bool>,
    ) {
        if let Some(shown) = &shown {
            self.certified.borrow_mut().push((shown.clone(), Rc::clone(&client)));
        }
        let peer = Rc::new(Peer { gate: Rc::clone(&self.gate), shown, address: Some(from) });
        let (its, server) = (Rc::clone(&client), Rc::clone(&self.server));
        let service = service_fn(move |request| {
            Rc::clone(&server).answer_peer(request, Rc::clone(&its), Rc::clone(&peer))
        });
        let connection = (Rc::clone(&client), stream);
        serve_connection(connection, &self.builder, service, Rc::clone(&self.server), draining).await;
        self.certified.borrow_mut().retain(|(_, other)| !Rc::ptr_eq(other, &client));
    }

    fn close_revoked(&self) {
        let certified = self.certified.borrow();
        certified
            .iter()
            .filter(|(shown, _)| self.gate.is_revoked(shown))
            .for_each(|(_, client)| client.close());
    }
}
