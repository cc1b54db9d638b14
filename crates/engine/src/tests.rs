//! Fuzz tests of the launcher's parsers, whose input comes from engines.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use plimsoll_fuzz::{count, mutants};
use plimsoll_process::Lines;
use plimsoll_wire::control::{EARLY_READY, EARLY_SLEEP, STATE_PREFIX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::{EngineAddress, control, program};
use plimsoll_http::collect_body;

/// Longest body that the client is asked to take.
const MOST: usize = 1000;
/// A single exchange that takes longer hangs.
const HANGS: Duration = Duration::from_secs(60);

const ANSWERS: [&[u8]; 6] = [
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nServer: llama.cpp\r\n\r\n6;ext=\"1\"\r\ndata: \r\n3\r\n1\n\n\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.0 503 Loading\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"Loading model\"}}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n\x81\x05hello",
    b"HTTP/1.1 401 Unauthorized\nContent-Length: 0\nKeep-Alive: timeout=5, max=100\n\nHTTP/1.1 200 OK\r\n\r\n",
];
const HEADS: [&[u8]; 10] = [
    b"HTTP/1.1 ",
    b"HTTP/1.1 304 \r\n",
    b"Content-Length: 18446744073709551615\r\n",
    b"Content-Length: 3, 3\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"0\r\n\r\n",
    b"Connection: close, upgrade\r\n",
    b"X: \r\n folded\r\n",
];

#[test]
fn million_lines_of_an_engine_are_the_same_however_they_are_cut() {
    let loading = format!(
        "{STATE_PREFIX}{{\"state\":\"loading\",\"payload\":{{\"stages\":[\"text\"],\"value\":0.5}}}}\n"
    );
    let ready = format!("{EARLY_READY}\r\n{STATE_PREFIX}{{\"state\":\"ready\"}}\nlog\n{EARLY_SLEEP}\n");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tokens: [&[u8]; 5] =
        [STATE_PREFIX.as_bytes(), b"\"state\":", b"\"sleeping\"", b"\"payload\":", b"\r\n"];
    mutants(&[loading.as_bytes(), ready.as_bytes()], &tokens, |bytes| {
        let lines = |room: usize| {
            let (near, mut far) = tokio::io::duplex(room);
            let write = async move {
                far.write_all(bytes).await.unwrap();
            };
            let read = async move {
                let (mut lines, mut all) = (Lines::new(Some(near)), Vec::new());
                while let Some(line) = lines.next().await {
                    all.push(line);
                }
                all
            };
            runtime.block_on(async { tokio::join!(write, read).1 })
        };
        let whole = lines(64 * 1024);
        assert_eq!(whole, lines(13), "{}", String::from_utf8_lossy(bytes));
        for line in &whole {
            let is_state = control::state(line).is_some();
            let may_be =
                line.starts_with(STATE_PREFIX) || [EARLY_READY, EARLY_SLEEP].contains(&line.as_str());
            assert!(!is_state || may_be, "{line}");
        }
    });
}

#[test]
fn million_answers_to_a_client_of_engines() {
    let folder = tempfile::tempdir().unwrap();
    let address = EngineAddress::in_folder(folder.path(), rustix::process::getuid().as_raw()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let listener = UnixListener::bind(folder.path().join("engine.sock")).unwrap();
    let mut answered = 0;
    mutants(&ANSWERS, &HEADS, |answer| {
        let engine = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let (head, rest) = answer.split_at(answer.len() / 2);
                let _ = stream.write_all(head).await;
                tokio::task::yield_now().await;
                let _ = stream.write_all(rest).await;
            }
        };
        let client = async {
            let mut client = address.clone().client();
            // The second request meets whatever the first left in the connection.
            for _ in 0..2 {
                let request = Request::get("/health").body(Full::default()).unwrap();
                let Ok(answer) = client.send(request).await else { continue };
                assert!(answer.status().as_u16() >= 101);
                if let Ok(body) = collect_body(answer, MOST).await {
                    assert!(body.len() <= MOST);
                    answered += 1;
                }
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
    assert!(answered > count() / 10, "{answered} answers were read");
}

#[test]
fn million_answers_of_programs() {
    const STATED: &[u8] = b"ggml_cuda_init: found 1 CUDA devices:\nversion: 6097 (9515c613)\nversion: 0.0.1 (build 11549, abc)\n  \
        Vulkan0: NVIDIA H200 (143771 MiB, 143000 MiB free)\n";
    mutants(&[STATED], &[b" (", b"version: ", b"\n  ", b":"], |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = program::version_line(&text);
        for line in text.lines() {
            let _ = program::listed_device(line);
        }
    });
}
