//! Keeps open connections to one engine, or to one other host of the fleet, and reuses them for later
//! requests.
//!
//! A request that fails on a reused connection, before the answer's first byte, is sent again on a new one.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use plimsoll_engine::EngineAddress;
use plimsoll_http::BoxTransport;
use plimsoll_identity::{DistrustedHost, PeerTls};
use rustix::io::Errno;

use super::engine_body::EngineBody;
use super::headers::is_event_stream;
use super::wire_state::{LimitedStream, WireState};

/// Idle connections kept per engine. llama-server uses one thread for each, so more would not help.
const MOST_IDLE: usize = 64;
/// Largest amount that may wait to be written, and of one read. A prompt sent in one write takes a fifth less
/// CPU time than one in pieces of 256 KiB (measured at 2 MB). It is a limit: buffers grow only as needed.
const BUFFER: usize = 4 * 1024 * 1024;

/// Time without an answer after which idle connections make way for a new one, at first and at most.
const CROWDED: Duration = Duration::from_millis(20);
const CROWDED_AT_MOST: Duration = Duration::from_secs(1);

/// No descriptor is left, in this process or in the whole system.
const EMFILE: i32 = Errno::MFILE.raw_os_error();
const ENFILE: i32 = Errno::NFILE.raw_os_error();
/// Pause before the next attempt, until a descriptor may be free again.
const BREATH: Duration = Duration::from_millis(20);

// The task that waits for an answer drives its connection, so dropping the answer closes the connection. Idle
// connections are checked when they are reused.
pub struct Upstream {
    address: EngineAddress,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    model: Option<String>,
    group: Option<u32>,
    /// The host of the fleet that has to answer, and this one's proof.
    host_of_fleet: Option<Rc<PeerHost>>,
    /// Lines that go with every request.
    lines: Vec<(HeaderName, HeaderValue)>,
    /// Shared by all that have the same address.
    idle: Rc<RefCell<Vec<Wire>>>,
}

impl Upstream {
    pub fn new(address: EngineAddress) -> Self {
        let host = match &address {
            EngineAddress::Port(port) => HeaderValue::from_str(&format!("127.0.0.1:{port}")).ok(),
            EngineAddress::Remote(address) => HeaderValue::from_str(address).ok(),
            EngineAddress::Socket { .. } => None,
        };
        Self {
            address,
            host: host.unwrap_or_else(|| HeaderValue::from_static("localhost")),
            authorization: None,
            model: None,
            group: None,
            host_of_fleet: None,
            lines: Vec::new(),
            idle: Rc::default(),
        }
    }

    /// The engine takes only requests with this key. A key that no header can carry is left out.
    pub fn with_key(mut self, key: &str) -> Self {
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        self.authorization = value.ok().map(|mut value| {
            // A sensitive value is left out of debug output, so the key reaches no log.
            value.set_sensitive(true);
            value
        });
        self
    }

    /// Connections are those of TLS to this host of the fleet; `distrusted` gets the server that answers in
    /// its place.
    pub fn of_host(mut self, tls: PeerTls, name: &str, distrusted: impl Fn(&io::Error) + 'static) -> Self {
        let (name, distrusted) = (name.to_owned(), Box::new(distrusted));
        self.host_of_fleet = Some(Rc::new(PeerHost { tls, name, distrusted }));
        self
    }

    /// The same address and connections, with these lines in every request.
    pub fn with_lines(&self, lines: Vec<(HeaderName, HeaderValue)>) -> Self {
        Self {
            address: self.address.clone(),
            host: self.host.clone(),
            authorization: self.authorization.clone(),
            model: self.model.clone(),
            group: self.group,
            host_of_fleet: self.host_of_fleet.clone(),
            lines,
            idle: Rc::clone(&self.idle),
        }
    }

    /// True for another host of the fleet: it shows its certificate, or gets the lines that only hosts with
    /// the fleet's key take. No engine does either.
    pub(crate) fn is_host(&self) -> bool {
        self.host_of_fleet.is_some() || !self.lines.is_empty()
    }

    pub fn lines(&self) -> &[(HeaderName, HeaderValue)] {
        &self.lines
    }

    /// Sets the model name that the engine accepts; requests are rewritten to it.
    pub fn with_model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Restricts the address to listeners of this process group or of this user.
    pub fn of_group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    pub fn address(&self) -> &EngineAddress {
        &self.address
    }

    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Takes the newest idle connection that is still open.
    pub async fn reuse(&self) -> Option<Wire> {
        poll_fn(|context| {
            loop {
                // The newest is the least likely to have been closed for idleness.
                let Some(mut wire) = self.idle.borrow_mut().pop() else {
                    return Poll::Ready(None);
                };
                if wire.is_open(context) {
                    return Poll::Ready(Some(wire));
                }
            }
        })
        .await
    }

    pub async fn connect(&self, patience: Duration) -> io::Result<Wire> {
        let stream = tokio::time::timeout(patience, self.stream()).await??;
        // No task drives this connection; see the module's first lines.
        let state = WireState::default();
        let stream = TokioIo::new(LimitedStream { stream, state: state.clone() });
        let handshake = http1::Builder::new().max_buf_size(BUFFER).handshake(stream).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        Ok(Wire {
            sender,
            connection: Box::new(connection),
            state,
            open: true,
            is_consumed: false,
            has_events: false,
        })
    }

    /// Waits for the answer on a new connection, and closes idle ones as long as no answer arrives.
    ///
    /// An idle connection occupies one of llama-server's threads for 5 s. If several connections arrive at
    /// once, some may get no thread (`httplib.h: ThreadPool::enqueue @ b10605` checks whether a thread is
    /// idle, not whether enough are). They would wait only for our idle connections.
    pub async fn crowd_in<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        let mut patience = CROWDED;
        loop {
            match tokio::time::timeout(patience, answer.as_mut()).await {
                Ok(answered) => return answered,
                // Closing them frees the engine's threads, of which one then takes the new connection.
                Err(_) => self.idle.borrow_mut().clear(),
            }
            patience = (patience * 2).min(CROWDED_AT_MOST);
        }
    }

    /// Opens a connection. A lack of descriptors is no failure of the engine: idle ones are closed, and
    /// others end soon.
    async fn stream(&self) -> io::Result<BoxTransport> {
        loop {
            match self.address.open(self.group).await {
                Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
                    // Idle connections are the only descriptors that can be freed here without harm.
                    self.idle.borrow_mut().clear();
                    tokio::time::sleep(BREATH).await;
                }
                outcome => return self.secured(outcome?).await,
            }
        }
    }

    /// The stream within TLS, where another host is to show that it is the one.
    async fn secured(&self, stream: BoxTransport) -> io::Result<BoxTransport> {
        let Some(host) = &self.host_of_fleet else { return Ok(stream) };
        match host.tls.connect(stream, &host.name).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                if DistrustedHost::is(&error) {
                    (host.distrusted)(&error);
                }
                Err(error)
            }
        }
    }

    /// Takes back a connection whose answer was read to its end; it is closed unless the engine has consumed
    /// the request.
    pub fn give_back(&self, wire: Wire) {
        let mut idle = self.idle.borrow_mut();
        if wire.may_carry_another() && idle.len() < MOST_IDLE {
            idle.push(wire);
        }
    }
}

/// Another host of the fleet, as TLS shows it.
struct PeerHost {
    tls: PeerTls,
    name: String,
    distrusted: Box<dyn Fn(&io::Error)>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("address", &self.address)
            .field("model", &self.model)
            .field("idle", &self.idle.borrow().len())
            .finish_non_exhaustive()
    }
}

/// A connection to an engine.
#[derive(Debug)]
pub struct Wire {
    sender: SendRequest<EngineBody>,
    /// Boxed, because a connection is large and a wire changes hands three times a request.
    connection: Box<Connection<TokioIo<LimitedStream>, EngineBody>>,
    state: WireState,
    open: bool,
    /// The answer shows that the engine has consumed the request.
    is_consumed: bool,
    /// The answer is an event stream.
    has_events: bool,
}

impl Wire {
    /// Moves bytes; call it whenever data expected on this connection has not arrived.
    pub(crate) fn drive(&mut self, context: &mut Context<'_>) {
        // The error is reported to the task that waits for the answer or its body.
        if self.open && Pin::new(&mut self.connection).poll(context).is_ready() {
            self.open = false;
        }
    }

    /// The connection itself, after an answer that upgrades it, and the bytes that were read behind the
    /// answer.
    pub(crate) async fn into_stream(mut self) -> hyper::Result<(LimitedStream, Bytes)> {
        if self.open {
            poll_fn(|context| Pin::new(&mut self.connection).poll(context)).await?;
        }
        let parts = self.connection.into_parts();
        Ok((parts.io.into_inner(), parts.read_buf))
    }

    /// True if the last answer on this connection is an event stream.
    pub(crate) fn has_events(&self) -> bool {
        self.has_events
    }

    /// DECISION: an engine that answers without reading a request's body takes the body for the next request,
    /// whose answer another client would get. A body counts as consumed only if all of it was sent before the
    /// answer's end, its method has one, and the engine answered with a success.
    fn may_carry_another(&self) -> bool {
        self.open && self.is_consumed && self.state.is_written()
    }

    fn is_open(&mut self, context: &mut Context<'_>) -> bool {
        // Driven once, so that a close by the engine that has arrived is noticed.
        self.drive(context);
        self.open && self.sender.is_ready()
    }

    pub async fn send(&mut self, mut request: Request<EngineBody>) -> hyper::Result<Response<Incoming>> {
        let takes_body = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
        let has_body = !request.body().is_empty();
        request.body_mut().leave_on(&self.state);
        self.is_consumed = false;
        let mut answer = pin!(self.sender.send_request(request));
        let (connection, open) = (&mut self.connection, &mut self.open);
        let answer = poll_fn(move |context| {
            // The connection first, because only its reads can complete the answer.
            if *open && Pin::new(&mut *connection).poll(context).is_ready() {
                *open = false;
            }
            answer.as_mut().poll(context)
        })
        .await?;
        self.is_consumed = !has_body || (takes_body && answer.status().is_success());
        self.has_events = is_event_stream(answer.headers());
        self.state.answered(self.has_events);
        Ok(answer)
    }
}
