//! Small blocking HTTP client that records exactly what a client receives, broken streams included.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// An answer, or what of it came before the connection broke.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The body ended as its framing promised.
    pub(crate) whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The data of the events of a stream. Panics if it is not well-formed SSE.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = self.text();
        assert!(text.is_empty() || text.ends_with("\n\n"), "the last event is not closed: {text:?}");
        let events = text.split("\n\n").filter(|event| !event.is_empty());
        let data = |event: &str| {
            event.strip_prefix("data: ").unwrap_or_else(|| panic!("not a data event: {event:?}")).to_owned()
        };
        events.filter(|event| !event.starts_with(':')).map(data).collect()
    }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, "GET", path, None)
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    send(address, "POST", path, Some(body))
}

pub(crate) fn chat(address: SocketAddr, model: &str) -> Answer {
    post(address, "/v1/chat/completions", &chat_body(model, false))
}

pub(crate) fn chat_stream(address: SocketAddr, model: &str) -> Answer {
    post(address, "/v1/chat/completions", &chat_body(model, true))
}

pub(crate) fn chat_body(model: &str, stream: bool) -> Value {
    serde_json::json!({
        "model": model, "stream": stream, "messages": [{"role": "user", "content": "the ship"}],
    })
}

fn send(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let stream = open(address, method, path, body);
    read(&stream)
}

/// Sends a request and leaves the answer in the connection.
pub(crate) fn open(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> TcpStream {
    open_with(address, method, path, "", body)
}

/// The same with `headers`, each ended by CR LF.
pub(crate) fn open_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: Option<&Value>,
) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the daemon listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).expect("the daemon reads");
    stream
}

pub(crate) fn read(stream: &TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut answer = Answer::default();
    // A connection that breaks leaves the answer as far as it came.
    let _ = read_into(&mut reader, &mut answer);
    answer
}

/// Reads one answer of a connection that stays, byte by byte where need be, and nothing of the next.
pub(crate) fn read_one(stream: &mut TcpStream) -> Answer {
    let mut reader = BufReader::with_capacity(1, stream);
    let mut answer = Answer::default();
    let _ = read_into(&mut reader, &mut answer);
    answer
}

fn read_into(reader: &mut impl BufRead, answer: &mut Answer) -> std::io::Result<()> {
    let status = line(reader)?;
    answer.status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    loop {
        let header = line(reader)?;
        match header.split_once(": ") {
            Some((name, value)) => answer.headers.push((name.to_owned(), value.to_owned())),
            None => break,
        }
    }
    if answer.header("transfer-encoding") == Some("chunked") {
        return chunks(reader, answer);
    }
    let length: Option<u64> = answer.header("content-length").and_then(|length| length.parse().ok());
    let read = match length {
        Some(length) => reader.take(length).read_to_end(&mut answer.body)?,
        None => reader.read_to_end(&mut answer.body)?,
    };
    answer.whole = length.is_none_or(|length| u64::try_from(read) == Ok(length));
    Ok(())
}

fn chunks(reader: &mut impl BufRead, answer: &mut Answer) -> std::io::Result<()> {
    loop {
        let size = line(reader)?;
        let size = u64::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
        if size == 0 {
            // The empty line that ends the trailers belongs to this answer, not to the next of the
            // connection.
            line(reader)?;
            answer.whole = true;
            return Ok(());
        }
        let read = reader.by_ref().take(size).read_to_end(&mut answer.body)?;
        if u64::try_from(read) != Ok(size) {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        line(reader)?;
    }
}

fn line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}
