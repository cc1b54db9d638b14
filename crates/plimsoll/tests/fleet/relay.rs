//! TCP relay that a test can cut: bytes are held back, and new connections get no answer, as on a broken
//! network.
//!
//! It can also delay requests of one kind.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    wire: Arc<Wire>,
}

#[derive(Default)]
struct Wire {
    target: Mutex<Option<SocketAddr>>,
    is_cut: AtomicBool,
    /// Text at the beginning of connections that wait, and for how long.
    late: Mutex<Option<(&'static str, Duration)>>,
}

impl Wire {
    fn wait(&self) {
        while self.is_cut.load(Ordering::Relaxed) {
            sleep(LOOK_AGAIN);
        }
    }
}

impl Relay {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, wire) = (listener.local_addr().unwrap(), Arc::new(Wire::default()));
        let relayed = Arc::clone(&wire);
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let wire = Arc::clone(&relayed);
                spawn(move || relay(stream, &wire));
            }
        });
        Self { address, wire }
    }

    pub(crate) fn lead_to(&self, target: SocketAddr) {
        *self.wire.target.lock().unwrap() = Some(target);
    }

    /// Lets connections wait that begin with this text.
    pub(crate) fn delay(&self, beginning: &'static str, time: Duration) {
        *self.wire.late.lock().unwrap() = Some((beginning, time));
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.wire.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

fn relay(from: TcpStream, wire: &Arc<Wire>) {
    wire.wait();
    let late = *wire.late.lock().unwrap();
    if let Some((beginning, time)) = late {
        let mut bytes = [0; 64];
        let read = from.peek(&mut bytes).unwrap_or_default();
        if bytes[..read].starts_with(beginning.as_bytes()) {
            sleep(time);
        }
    }
    let target = *wire.target.lock().unwrap();
    // Without a target the connection is closed, as that of a program that has ended.
    let Some(to) = target.and_then(|target| TcpStream::connect(target).ok()) else { return };
    let (back, forth) = (to.try_clone().unwrap(), from.try_clone().unwrap());
    let answers = Arc::clone(wire);
    spawn(move || pump(back, forth, &answers));
    pump(from, to, wire);
}

fn pump(mut from: TcpStream, mut to: TcpStream, wire: &Wire) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        wire.wait();
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    wire.wait();
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
