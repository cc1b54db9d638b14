//! Formats requests for the tests of the HTTP server, and reads requests and answers from sockets as text.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(in crate::tests) fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Reads one request, head and body, as text.
pub(in crate::tests) async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let piece = read_some(stream).await;
        assert!(!piece.is_empty(), "the request ends early: {text}");
        text.push_str(&piece);
    }
}

pub(in crate::tests) async fn read_some(stream: &mut TcpStream) -> String {
    let mut buffer = vec![0; 65536];
    let length = stream.read(&mut buffer).await.unwrap_or(0);
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

pub(in crate::tests) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let piece = read_some(stream).await;
        assert!(!piece.is_empty(), "closed before {end:?}: {text:?}");
        text.push_str(&piece);
    }
    text
}

pub(in crate::tests) async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        let piece = read_some(stream).await;
        if piece.is_empty() {
            return text;
        }
        text.push_str(&piece);
    }
}

pub(in crate::tests) async fn write(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Undoes `Transfer-Encoding: chunked`; `None` when the end is missing.
pub(in crate::tests) fn unchunked(response: &str) -> Option<String> {
    let (_, mut rest) = response.split_once("\r\n\r\n")?;
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return (after == "\r\n").then_some(body);
        }
        body.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
    }
}
