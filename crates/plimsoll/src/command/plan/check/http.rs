//! One GET to a server on this machine: HTTP/1.0, so that the answer ends with the connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

use super::CheckError;

const PATIENCE: Duration = Duration::from_secs(10);
/// More than any status of an engine.
const MOST: u64 = 16 << 20;

/// A server on a loopback address.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) socket: SocketAddr,
}

impl Address {
    /// Reads `http://127.0.0.1:8080`, with a path that is left aside.
    pub(super) fn read(text: &str) -> Result<Self, CheckError> {
        let target = || CheckError::Target(text.to_owned());
        let host = text.strip_prefix("http://").ok_or_else(target)?;
        let host = host.split('/').next().unwrap_or(host);
        let host = if host.rsplit(']').next().is_some_and(|end| end.contains(':')) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let mut sockets = host.to_socket_addrs().map_err(|_| target())?;
        let socket = sockets.find(|socket| socket.ip().is_loopback());
        socket
            .map(|socket| Self { socket })
            .ok_or_else(|| CheckError::NotLocal(text.to_owned()))
    }

    pub(super) fn answers_otherwise(&self, path: &str, why: &str) -> CheckError {
        CheckError::Answer {
            address: self.socket,
            path: path.to_owned(),
            why: why.to_owned(),
        }
    }
}

/// The JSON at a path; `None` where the server has no such page or it is no JSON.
pub(super) fn get(address: &Address, path: &str) -> Result<Option<Value>, CheckError> {
    let answer = exchange(address.socket, path).map_err(|error| CheckError::Ask {
        address: address.socket,
        path: path.to_owned(),
        error,
    })?;
    Ok(body(&answer).and_then(|body| serde_json::from_slice(body).ok()))
}

fn exchange(socket: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&socket, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {socket}\r\nAccept: application/json\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer)?;
    Ok(answer)
}

/// What follows the head of an answer that says 200.
fn body(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let ok = head.lines().next()?.split(' ').nth(1) == Some("200");
    ok.then_some(&answer[end + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_port_and_path() {
        for (text, socket) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://127.0.0.1:8080/v1/", "127.0.0.1:8080"),
            ("http://[::1]:9", "[::1]:9"),
            ("http://127.0.0.1", "127.0.0.1:80"),
        ] {
            assert_eq!(Address::read(text).unwrap().socket, socket.parse().unwrap());
        }
    }

    #[test]
    fn only_what_says_200_has_a_body() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some(&b"{}"[..]));
        assert_eq!(body(b"HTTP/1.1 404 Not Found\r\n\r\n{}"), None);
        assert_eq!(body(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
