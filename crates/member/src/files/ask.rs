//! Requests from another host the list of a model's files, and one part of a file.
//!
//! The response is untrusted. A part with other than the requested bytes is an error.

use std::time::Duration;

use http::header::{CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use plimsoll_fleet::FileDigest;
use plimsoll_hub::HostFault;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::FileList;
use super::place::MOST_FILES;
use plimsoll_route::{EngineBody, Rope, StreamSource, Upstream, to_engine};

/// Time to connect, and for one answer: the other host lets a part wait for 10 s, and a slow line takes its
/// time.
const CONNECT: Duration = Duration::from_secs(2);
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Pauses and attempts while the other host reads its files for their digests: half an hour.
const PENDING: Duration = Duration::from_secs(1);
const MOST_PENDING: u32 = 1800;
/// Longest refusal that is read.
const LONGEST_REFUSAL: usize = 64 * 1024;
/// Longest list of files.
const LONGEST_LIST: usize = MOST_FILES * 256;

/// Bytes of a file, which has so many.
#[derive(Clone, Debug)]
pub(super) struct WantedPart {
    pub(super) sha256: String,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) size: u64,
}

/// The list of the files, once the other host has their digests.
pub(super) async fn list(peer: &Upstream, digest: &FileDigest) -> Result<FileList, HostFault> {
    let path = format!("/{}-{}", digest.header, digest.size.get());
    for _ in 0..MOST_PENDING {
        let requested = timeout(PATIENCE, peer.ask(Method::GET, &path, None, LONGEST_LIST)).await;
        let answer = requested
            .ok()
            .flatten()
            .ok_or_else(|| HostFault::Silent("it did not send the list of the model's files".to_owned()));
        let (status, text) = answer?;
        if status == StatusCode::OK {
            let list: Option<FileList> = serde_json::from_slice(&text).ok();
            return list
                .ok_or_else(|| HostFault::Lies("its list of the model's files cannot be read".to_owned()));
        }
        match refusal(status, &text) {
            HostFault::Silent(code) if code == "digest_pending" => sleep(PENDING).await,
            fault => return Err(fault),
        }
    }
    Err(HostFault::Silent("it is still reading its files after half an hour".to_owned()))
}

/// The fault of a host that answers with such a status.
fn refusal(status: StatusCode, text: &[u8]) -> HostFault {
    let text: Option<Value> = serde_json::from_slice(text).ok();
    let code =
        text.and_then(|text| Some(text["error"]["code"].as_str()?.chars().take(64).collect::<String>()));
    let code = code.unwrap_or_else(|| format!("status {status}"));
    match status {
        StatusCode::OK => HostFault::Lies("it sent the whole file instead of the requested part".to_owned()),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => HostFault::Silent(code),
        _ => HostFault::Refused(code),
    }
}

/// One part, which has to be exactly what was asked for.
pub(super) async fn part_from(peer: &Upstream, wanted: &WantedPart) -> Result<Vec<u8>, HostFault> {
    let silent = |error: &dyn std::fmt::Display| HostFault::Silent(error.to_string());
    let (start, end) = (wanted.start, wanted.start + wanted.length - 1);
    let lies = |text: String| Err(HostFault::Lies(text));
    let mut wire = match peer.reuse().await {
        Some(wire) => wire,
        None => peer.connect(CONNECT).await.map_err(|error| silent(&error))?,
    };
    let mut lines = HeaderMap::new();
    let range = HeaderValue::try_from(format!("bytes={start}-{end}")).map_err(|error| silent(&error))?;
    lines.insert(RANGE, range);
    let mut request = Request::new(EngineBody::from(Rope::default()));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = Uri::try_from(format!("/{}", wanted.sha256)).map_err(|error| silent(&error))?;
    *request.headers_mut() = to_engine(&lines, peer, 0);
    let (head, body) = wire.send(request).await.map_err(|error| silent(&error))?.into_parts();
    let mut source = StreamSource { wire, body };
    let most = usize::try_from(wanted.length).unwrap_or(usize::MAX);
    if head.status != StatusCode::PARTIAL_CONTENT {
        // A whole file in place of a part is not read.
        let is_short = head.status != StatusCode::OK;
        let text = if is_short { source.rest(LONGEST_REFUSAL).await.ok().flatten() } else { None };
        return Err(refusal(head.status, &text.unwrap_or_default()));
    }
    let range = head.headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
    if range != format!("bytes {start}-{end}/{}", wanted.size) {
        return lies(format!(
            "its answer to a request for the bytes {start} to {end} states the range `{}`",
            range.escape_debug().take(64).collect::<String>()
        ));
    }
    let bytes = source.rest(most).await.map_err(|error| silent(&error))?;
    match bytes.filter(|bytes| bytes.len() == most) {
        Some(bytes) => {
            peer.give_back(source.wire);
            Ok(bytes)
        }
        None => lies("its answer has a different number of bytes than it states".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use plimsoll_base::Bytes;
    use plimsoll_engine::EngineAddress;

    use super::*;

    /// A host that gives these answers, one a connection, and then the last one again.
    fn host(answers: Vec<Vec<u8>>) -> (Upstream, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requested) =
            (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&requested);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answers.get(number).or(answers.last()).unwrap());
            }
        });
        (Upstream::new(EngineAddress::Remote(address)), requested)
    }

    fn answer(status: &str, lines: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 {status}\r\n{lines}Connection: close\r\n\r\n{body}").into_bytes()
    }

    fn part(range: &str, body: &str) -> Vec<u8> {
        let lines = format!("Content-Range: bytes {range}\r\nContent-Length: {}\r\n", body.len());
        answer("206 Partial Content", &lines, body)
    }

    async fn requested(given: Vec<u8>) -> Result<Vec<u8>, HostFault> {
        let wanted = WantedPart { sha256: "a".repeat(64), start: 5, length: 4, size: 100 };
        part_from(&host(vec![given]).0, &wanted).await
    }

    #[tokio::test]
    async fn a_part_is_exactly_what_was_asked_for() {
        assert_eq!(requested(part("5-8/100", "abcd")).await, Ok(b"abcd".to_vec()));
        let chunked = "Content-Range: bytes 5-8/100\r\nTransfer-Encoding: chunked\r\n";
        let endless = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
        for (name, lie) in [
            ("the whole file", answer("200 OK", "Content-Length: 4\r\n", "abcd")),
            ("another range", part("0-3/100", "abcd")),
            ("another size", part("5-8/101", "abcd")),
            ("a range of unknown size", part("5-8/*", "abcd")),
            ("no range", answer("206 Partial Content", "Content-Length: 4\r\n", "abcd")),
            ("too much", part("5-8/100", "abcde")),
            ("too little", part("5-8/100", "abc")),
            ("nothing", part("5-8/100", "")),
            ("no end", answer("206 Partial Content", chunked, &endless)),
            ("an end too soon", answer("206 Partial Content", chunked, "1\r\na\r\n0\r\n\r\n")),
        ] {
            let ended = requested(lie).await;
            assert!(matches!(ended, Err(HostFault::Lies(_))), "{name}: {ended:?}");
        }
        for (name, silence) in [
            ("a cut", b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-8/100\r\nContent-Length: 4\r\n\r\nab".to_vec()),
            ("a cut at once", Vec::new()),
            ("garbage", b"\xff\0\r\n\r\n".to_vec()),
            ("another one's turn", answer("503 Busy", "Content-Length: 0\r\n", "")),
        ] {
            let ended = requested(silence).await;
            assert!(matches!(ended, Err(HostFault::Silent(_))), "{name}: {ended:?}");
        }
        let refused = answer("404 Not Found", "", r#"{"error":{"code":"no_such_file"}}"#);
        assert_eq!(requested(refused).await, Err(HostFault::Refused("no_such_file".to_owned())));
    }

    #[tokio::test]
    async fn a_list_is_waited_for_and_what_is_none_is_a_lie() {
        let digest = FileDigest { header: "00ff00ff00ff00ff".to_owned(), size: Bytes::new(4) };
        let pending = answer("503 Busy", "", r#"{"error":{"code":"digest_pending"}}"#);
        let sound = answer("200 OK", "", r#"{"schema":1,"files":[],"later":true}"#);
        let (peer, requested) = host(vec![pending, sound]);
        assert!(list(&peer, &digest).await.unwrap().files.is_empty());
        assert_eq!(requested.load(Ordering::Relaxed), 2);
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "{}",
            "[]",
            r#"{"schema":1,"files":[{"role":"shell","part":0,"size":1,"sha256":""}]}"#,
            &deep,
        ] {
            let ended = list(&host(vec![answer("200 OK", "", text)]).0, &digest).await;
            assert!(matches!(ended, Err(HostFault::Lies(_))), "{text:.40}: {ended:?}");
        }
        let long = answer("200 OK", "", &"x".repeat(LONGEST_LIST + 1));
        assert!(list(&host(vec![long]).0, &digest).await.is_err());
    }
}
