//! Fuzz tests of all engine output: status lines, headers, bodies of every framing, token counts.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use plimsoll_engine::EngineAddress;
use plimsoll_fuzz::{count, mutants};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc::{Receiver, channel};

use super::stub::*;
use crate::rope::Rope;
use crate::{Limits, RequestPrompt, Upstream};

/// A single exchange that takes longer hangs.
const HANGS: Duration = Duration::from_secs(60);

const SEEDS: [&[u8]; 7] = [
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 28\r\nKeep-Alive: timeout=5, max=100\r\n\r\n{\"usage\":{\"total_tokens\":7}}",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n6;x=\"y\"\r\ndata: \r\n3\r\n2\n\n\r\n0\r\nX-Trailer: 1\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {\"a\":1}\r\n\r\n: note\n\ndata: [DONE]\n\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n\x81\x05hello",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\nX-Content-Type-Options: nosniff\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 500 Internal\nContent-Encoding: gzip\nAccess-Control-Allow-Origin: *\nX-Accel-Buffering: yes\n\n\x1f\x8b",
];
const TOKENS: [&[u8]; 14] = [
    b"HTTP/1.1 ",
    b"HTTP/1.1 199 \r\n",
    b"Content-Length: 18446744073709551615\r\n",
    b"Content-Length: 3, 3\r\n",
    b"Content-Length: 4\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"0\r\n\r\n",
    b"Connection: content-length, transfer-encoding\r\n",
    b"X: \r\n folded\r\n",
    b"Content-Type: text/event-stream\r\n",
    b"data: ",
];

/// Mutants of `seeds`, made on a thread of their own.
fn created(seeds: &'static [&[u8]], tokens: &'static [&[u8]]) -> Receiver<Vec<u8>> {
    let (created, created_here) = channel(64);
    std::thread::spawn(move || mutants(seeds, tokens, |mutant| drop(created.blocking_send(mutant.to_vec()))));
    created_here
}

/// Gives every connection the bytes that `answer` holds at that moment, in two writes, and closes it.
async fn engine(listener: &TcpListener, answer: &RefCell<Vec<u8>>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let answer = answer.borrow().clone();
        let (head, rest) = answer.split_at(answer.len() / 2);
        let _ = stream.write_all(head).await;
        tokio::task::yield_now().await;
        let _ = stream.write_all(rest).await;
    }
}

/// A client's reading of an answer, by the framing that its head names.
struct Read {
    head: String,
    /// The body came whole, and the connection can carry another request.
    stays: bool,
}

async fn read(client: &mut BufReader<TcpStream>) -> Read {
    let mut read = Read { head: String::new(), stays: false };
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        if client.read_until(b'\n', &mut bytes).await.unwrap_or(0) == 0 {
            assert!(bytes.is_empty(), "a head breaks off: {}", String::from_utf8_lossy(&bytes));
            return read;
        }
    }
    read.head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let lines = |name: &str| {
        read.head.lines().filter_map(|line| line.strip_prefix(name)).map(str::trim).collect::<Vec<_>>()
    };
    let (lengths, codings) = (lines("content-length:"), lines("transfer-encoding:"));
    assert!(lengths.len() + codings.len() <= 1, "{}", read.head);
    let no_body = ["http/1.1 204", "http/1.1 304"].iter().any(|start| read.head.starts_with(start));
    let whole = match (lengths.first(), codings.first()) {
        _ if no_body => true,
        (Some(length), _) => {
            let length: u64 = length.parse().unwrap_or_else(|_| panic!("{}", read.head));
            tokio::io::copy(&mut client.take(length), &mut tokio::io::sink())
                .await
                .is_ok_and(|read| read == length)
        }
        (None, Some(coding)) => {
            assert_eq!(*coding, "chunked", "{}", read.head);
            chunks(client).await
        }
        (None, None) => {
            tokio::io::copy(client, &mut tokio::io::sink()).await.unwrap_or(0);
            false
        }
    };
    let closes = lines("connection:").contains(&"close");
    read.stays = whole && !closes;
    read
}

/// Reads a chunked body; false if it breaks off.
async fn chunks(client: &mut BufReader<TcpStream>) -> bool {
    loop {
        let mut line = String::new();
        if client.read_line(&mut line).await.unwrap_or(0) == 0 {
            return false;
        }
        let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        if client.read_exact(&mut chunk).await.is_err() {
            return false;
        }
        assert!(chunk.ends_with(b"\r\n"), "{line}");
        if size == 0 {
            return true;
        }
    }
}

#[test]
fn million_answers_of_an_engine_leave_the_clients_connection_in_order() {
    const ASKS: &str = r#"{"model":"real","stream":true}"#;
    let mut mutants = created(&SEEDS, &TOKENS);
    on_stage_of_many(|stage| async move {
        let answer = RefCell::new(Vec::new());
        let (mut stayed, mut broke) = (0, 0);
        let play = async {
            let mut client = None;
            while let Some(mutant) = mutants.recv().await {
                answer.replace(mutant);
                let mut open = match client.take() {
                    Some(open) => open,
                    None => BufReader::new(stage.client().await),
                };
                write(open.get_mut(), &post("/v1/chat/completions", ASKS)).await;
                let shown = || String::from_utf8_lossy(&answer.borrow()).into_owned();
                let read = tokio::time::timeout(HANGS, read(&mut open)).await;
                let read = read.unwrap_or_else(|_| panic!("hangs at {}", shown()));
                assert!(
                    read.head.is_empty() || read.head.starts_with("http/1.1 "),
                    "{}\n→ {}",
                    shown(),
                    read.head
                );
                for ours in ["access-control-allow-origin:", "upgrade:", "keep-alive:", "trailer:"] {
                    assert!(!read.head.contains(&format!("\n{ours}")), "{}\n→ {}", shown(), read.head);
                }
                if !read.stays {
                    broke += 1;
                    continue;
                }
                // The next answer on the connection is the next request's, whatever the engine sent.
                write(open.get_mut(), "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
                let mut health = [0; 15];
                open.read_exact(&mut health)
                    .await
                    .unwrap_or_else(|error| panic!("{error} after {}", shown()));
                assert_eq!(&health, b"HTTP/1.1 200 OK", "{}", shown());
                let mut rest = Vec::new();
                while !rest.ends_with(b"{\"status\":\"ok\"}") {
                    assert!(open.read_until(b'}', &mut rest).await.unwrap() > 0);
                }
                stayed += 1;
                client = Some(open);
            }
        };
        tokio::select! {
            () = engine(&stage.engine, &answer) => {}
            () = play => {}
        }
        stage.until_idle().await;
        assert!(stayed > count() / 10 && broke > count() / 100, "{stayed} stayed, {broke} broke");
    });
}

#[test]
fn million_counts_of_an_engine() {
    const COUNTS: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n{\"prompt\":\"x\",\"tokens\":[1,2,3]}\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n1b\r\nmpt\":\"x\\u00e9\",\"tokens\":[]}\r\n0\r\n\r\n",
        b"HTTP/1.1 501 Not Implemented\r\nContent-Length: 2\r\n\r\n{}",
    ];
    const PIECES: [&[u8]; 6] = [
        b"\"tokens\":",
        b"[[[[",
        b"\\ud800",
        b"Content-Length: 99999999\r\n",
        b"null",
        b"HTTP/1.1 200 OK\r\n",
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let listener = UnixListener::bind(&path).unwrap();
    let address = EngineAddress::Socket { path, user: rustix::process::getuid().as_raw() };
    let body = Rope::from(Bytes::from_static(br#"{"model":"real","messages":[]}"#));
    let (limits, counted) = (Limits::default(), Rc::new(RefCell::new(0)));
    mutants(&COUNTS, &PIECES, |answer| {
        let engine = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer).await;
            }
        };
        let client = async {
            let upstream = Upstream::new(address.clone());
            let prompt = RequestPrompt { method: &Method::POST, path: "/v1/chat/completions", body: &body };
            if let Some(depth) = prompt.count(&upstream, &limits).await {
                assert!(depth.exact && depth.prompt.is_some_and(|tokens| tokens < 100_000));
                *counted.borrow_mut() += 1;
            }
        };
        let both = async {
            tokio::select! {
                () = engine => {}
                () = client => {}
            }
        };
        let ended = runtime.block_on(async { tokio::time::timeout(HANGS, both).await });
        assert!(ended.is_ok(), "hangs at {}", String::from_utf8_lossy(answer));
    });
    assert!(*counted.borrow() > count() / 100, "{} were counted", counted.borrow());
}
