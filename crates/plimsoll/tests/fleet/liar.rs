//! Malicious fleet host for tests: its certificate is valid, but it sends other hosts false records of the
//! fleet, as scripted.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::spawn;
use std::time::Duration;

use plimsoll_etcd::{Etcd, StoreAccess, StoreAddress, StoreHeader};
use plimsoll_fleet::{FleetView, KeySpace, NewsLine, StoreChange};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::intruder::read;

/// A connection, as far as the answer's head.
pub(crate) type Listener = StreamOwned<ServerConnection, TcpStream>;
/// What is told to the listener with this number; an error is the end of the connection.
pub(crate) type Lie = dyn Fn(usize, &mut Listener) -> std::io::Result<()> + Send + Sync;

pub(crate) struct Liar {
    /// Connections on which the lie was told to the end, or was cut off.
    reported: Arc<AtomicUsize>,
}

impl Liar {
    /// Answers at this address with the certificate of this folder.
    pub(crate) fn start(address: SocketAddr, identity: &Path, lie: Arc<Lie>) -> Self {
        let (certificate, key) = read(identity);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let (config, listener) = (Arc::new(config), TcpListener::bind(address).unwrap());
        let reported = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reported);
        spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (config, lie, count) = (Arc::clone(&config), Arc::clone(&lie), Arc::clone(&count));
                spawn(move || {
                    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
                    let connection = ServerConnection::new(config).unwrap();
                    // Hosts leave a liar in the middle of a line.
                    let _ = answer(number, StreamOwned::new(connection, stream), &*lie);
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        Self { reported }
    }

    pub(crate) fn reported(&self) -> usize {
        self.reported.load(Ordering::Relaxed)
    }
}

fn answer(number: usize, mut stream: Listener, lie: &Lie) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            return Ok(());
        }
        request.extend(byte);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nplimsoll-host: liar\r\nconnection: close\r\n\r\n")?;
    lie(number, &mut stream)
}

/// The store as it is.
pub(crate) fn truth(address: &str) -> (StoreHeader, Vec<StoreChange>) {
    let address: StoreAddress = address.parse().unwrap();
    let client = Etcd::new(&address, KeySpace::of(&address.fleet).unwrap(), &StoreAccess::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(client.read()).unwrap()
}

/// All records as a host tells them first.
pub(crate) fn reported(store: &StoreHeader, revision: u64, records: Vec<StoreChange>) -> Vec<u8> {
    let view = FleetView::at(revision, records);
    NewsLine::all(&keys(), &view, store.cluster_id, store.raft_term, 0)
}

/// A line of changes.
pub(crate) fn changed(changes: &[StoreChange]) -> Vec<u8> {
    NewsLine::changes(&keys(), changes).flat_map(|line| line.write()).collect()
}

fn keys() -> KeySpace {
    KeySpace::of("test").unwrap()
}

/// The revision at which the store is, as if it were all that there is, until the listener goes.
pub(crate) fn beat(stream: &mut Listener, revision: u64) -> std::io::Result<()> {
    loop {
        stream.write_all(&NewsLine::Beat { revision, depth: 0 }.write())?;
        stream.flush()?;
        std::thread::sleep(Duration::from_millis(500));
    }
}
