//! Minimal HTTP/1.1 server of the fake engine: keep-alive, content lengths, chunks, `100-continue`.
//!
//! It uses one input buffer, one output buffer and one write for each answer. Benchmarks compare the proxy
//! with this server, so its own cost must be small.

use std::fmt::Write as _;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

const HEAD_LIMIT: usize = 64 << 10;
const BODY_LIMIT: usize = 256 << 20;
const MAX_HEADERS: usize = 64;

pub(crate) const JSON: &str = "application/json; charset=utf-8";

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) is_post: bool,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) query: String,
    /// From `Authorization: Bearer` or `X-Api-Key`.
    pub(crate) key: Option<String>,
    pub(crate) keep_alive: bool,
    pub(crate) body: Bytes,
}

/// A client's socket of either kind.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {}

impl Socket for TcpStream {}
impl Socket for UnixStream {}

/// A Unix socket where the host ends so, as llama-server has it (`server-http.cpp: start @ b10605`).
pub(crate) const SOCKET_ENDING: &str = ".sock";

#[derive(Debug)]
pub(crate) enum Listener {
    Port(TcpListener),
    Socket(UnixListener),
}

impl Listener {
    pub(crate) async fn bind(host: &str, port: u16) -> io::Result<Self> {
        if host.ends_with(SOCKET_ENDING) {
            UnixListener::bind(host).map(Self::Socket)
        } else {
            TcpListener::bind((host, port)).await.map(Self::Port)
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Port(listener) => listener.local_addr().map_or(0, |address| address.port()),
            Self::Socket(_) => 0,
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Box<dyn Socket>> {
        match self {
            Self::Port(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Socket(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

pub(crate) struct Connection {
    socket: Box<dyn Socket>,
    inbox: BytesMut,
    outbox: Vec<u8>,
    /// Header lines that every answer carries.
    signature: String,
    keep_alive_line: String,
}

#[derive(Debug, Default)]
struct Head {
    length: usize,
    is_post: bool,
    path: String,
    query: String,
    key: Option<String>,
    keep_alive: bool,
    expects_continue: bool,
    body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Length(usize),
    Chunked,
}

impl Default for Body {
    fn default() -> Self {
        Self::Length(0)
    }
}

impl Connection {
    pub(crate) fn new(socket: Box<dyn Socket>, signature: String, keep_alive_line: String) -> Self {
        Self {
            socket,
            inbox: BytesMut::with_capacity(8 << 10),
            outbox: Vec::with_capacity(4 << 10),
            signature,
            keep_alive_line,
        }
    }

    /// The next request, or none when the client is done.
    pub(crate) async fn request(&mut self) -> io::Result<Option<Request>> {
        let head = loop {
            if let Some(head) = parse_head(&self.inbox)? {
                break head;
            }
            if self.inbox.len() > HEAD_LIMIT {
                return Err(malformed("the head is too long"));
            }
            if !self.fill(8 << 10).await? {
                return Ok(None);
            }
        };
        self.inbox.advance(head.length);
        if head.expects_continue {
            self.socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let body = match head.body {
            Body::Length(length) => self.take(length).await?,
            Body::Chunked => self.take_chunks().await?,
        };
        let Head { is_post, path, query, key, keep_alive, .. } = head;
        Ok(Some(Request { is_post, path, query, key, keep_alive, body }))
    }

    pub(crate) async fn answer(
        &mut self,
        status: u16,
        kind: &str,
        body: &str,
        keep_alive: bool,
    ) -> io::Result<()> {
        self.begin(status, kind, keep_alive);
        let framing = format_args!("Content-Length: {}\r\n\r\n", body.len()).to_string();
        self.outbox.extend_from_slice(framing.as_bytes());
        self.outbox.extend_from_slice(body.as_bytes());
        self.flush().await
    }

    pub(crate) async fn begin_events(&mut self, keep_alive: bool) -> io::Result<()> {
        self.begin(200, "text/event-stream", keep_alive);
        self.outbox.extend_from_slice(b"X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n");
        self.flush().await
    }

    /// Sends one chunk; an empty one ends the answer.
    pub(crate) async fn chunk(&mut self, data: &str) -> io::Result<()> {
        self.put_chunk(data);
        self.flush().await
    }

    /// Sends the first half of a chunk, for the engine that dies in the middle of it.
    pub(crate) async fn torn_chunk(&mut self, data: &str) -> io::Result<()> {
        self.put_chunk(data);
        self.outbox.truncate(self.outbox.len() / 2);
        self.flush().await
    }

    /// Resolves when the client has closed its side. Bytes of a next request are kept.
    pub(crate) async fn client_gone(&mut self) {
        loop {
            self.inbox.reserve(1);
            match self.socket.read_buf(&mut self.inbox).await {
                Ok(0) | Err(_) => return,
                Ok(_) if self.inbox.len() > HEAD_LIMIT => return,
                Ok(_) => {}
            }
        }
    }

    fn begin(&mut self, status: u16, kind: &str, keep_alive: bool) {
        let mut head = String::with_capacity(256);
        let reason = reason(status);
        let connection = if keep_alive { self.keep_alive_line.as_str() } else { "Connection: close\r\n" };
        let signature = &self.signature;
        // Writing to a String cannot fail.
        write!(head, "HTTP/1.1 {status} {reason}\r\n{signature}{connection}Content-Type: {kind}\r\n").ok();
        self.outbox.extend_from_slice(head.as_bytes());
    }

    fn put_chunk(&mut self, data: &str) {
        self.outbox.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        self.outbox.extend_from_slice(data.as_bytes());
        self.outbox.extend_from_slice(b"\r\n");
    }

    async fn flush(&mut self) -> io::Result<()> {
        let sent = self.socket.write_all(&self.outbox).await;
        self.outbox.clear();
        sent
    }

    async fn fill(&mut self, room: usize) -> io::Result<bool> {
        self.inbox.reserve(room);
        Ok(self.socket.read_buf(&mut self.inbox).await? > 0)
    }

    async fn take(&mut self, length: usize) -> io::Result<Bytes> {
        if length > BODY_LIMIT {
            return Err(malformed("the body is too long"));
        }
        while self.inbox.len() < length {
            if !self.fill(length - self.inbox.len()).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.inbox.split_to(length).freeze())
    }

    async fn take_chunks(&mut self) -> io::Result<Bytes> {
        let mut body = BytesMut::new();
        loop {
            let (start, size) = loop {
                match httparse::parse_chunk_size(&self.inbox) {
                    Ok(httparse::Status::Complete(found)) => break found,
                    Ok(httparse::Status::Partial) if self.fill(8 << 10).await? => {}
                    _ => return Err(malformed("the chunk size is unreadable")),
                }
            };
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if size > BODY_LIMIT - body.len() {
                return Err(malformed("the body is too long"));
            }
            self.take(start).await?;
            body.extend_from_slice(&self.take(size).await?);
            self.take(2).await?;
            if size == 0 {
                return Ok(body.freeze());
            }
        }
    }
}

fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(bytes).map_err(|error| malformed(&error.to_string()))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    let target = parsed.path.unwrap_or("/");
    let mut head = Head {
        length,
        is_post: parsed.method == Some("POST"),
        path: target.split('?').next().unwrap_or(target).to_owned(),
        query: target.split_once('?').map_or("", |(_, query)| query).to_owned(),
        keep_alive: parsed.version == Some(1),
        ..Head::default()
    };
    for header in parsed.headers {
        head.note(header.name, header.value)?;
    }
    Ok(Some(head))
}

impl Head {
    fn note(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        let text = || str::from_utf8(value).map(str::trim).map_err(|_| malformed("a header is not text"));
        if name.eq_ignore_ascii_case("content-length") {
            let length = text()?.parse().map_err(|_| malformed("the content-length is not a number"))?;
            self.body = Body::Length(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.body = Body::Chunked;
        } else if name.eq_ignore_ascii_case("connection") {
            self.keep_alive &= !text()?.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("expect") {
            self.expects_continue = true;
        } else if name.eq_ignore_ascii_case("authorization") {
            self.key = text()?.strip_prefix("Bearer ").map(str::to_owned);
        } else if name.eq_ignore_ascii_case("x-api-key") && self.key.is_none() {
            self.key = Some(text()?.to_owned());
        }
        Ok(())
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let whole = b"POST /v1/x?y=1 HTTP/1.1\r\nContent-Length: 7\r\nAuthorization: Bearer k\r\n\r\nrest";
        assert!(parse_head(&whole[..40]).unwrap().is_none());
        let head = parse_head(whole).unwrap().unwrap();
        assert_eq!(
            (head.length, head.path.as_str(), head.key.as_deref()),
            (whole.len() - 4, "/v1/x", Some("k"))
        );
        assert_eq!((head.is_post, head.keep_alive, head.body), (true, true, Body::Length(7)));
    }

    #[test]
    fn close_and_http_1_0_end_the_connection() {
        for text in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nConnection: Close\r\n\r\n"] {
            assert!(!parse_head(text.as_bytes()).unwrap().unwrap().keep_alive);
        }
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        assert!(parse_head(b"\x00\x01\r\n\r\n").is_err());
        assert!(parse_head(b"GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n").is_err());
    }
}
