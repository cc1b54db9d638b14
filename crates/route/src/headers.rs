//! Prepares the HTTP headers of a request for its engine: removes those meant for this server, and replaces
//! the API key.
//!
//! Hop-by-hop headers (RFC 9110 §7.6.1), `Origin`, cookies and this server's own headers are removed, and the
//! client's API key is replaced by the engine's.

use std::collections::HashSet;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::upstream::Upstream;

pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Time between two comments of a stream that waits, or `off`.
pub(crate) const X_HEARTBEAT: HeaderName = HeaderName::from_static("x-plimsoll-heartbeat");
const EVENT_STREAM: &[u8] = b"text/event-stream";
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Beginnings of the names of this server's own headers, by which hosts of a fleet speak with one another.
const OWN: [&str; 2] = ["plimsoll-", "x-plimsoll-"];

const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const OURS: [&str; 8] = [
    "host",
    "content-length",
    "authorization",
    "x-api-key",
    "expect",
    "accept-encoding",
    "origin",
    // Browsers send those of every program of this machine, whatever its port.
    "cookie",
];

/// True for a line that concerns one connection only.
pub(super) fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name)
}

/// True for a header of this server.
pub(super) fn is_own(name: &str) -> bool {
    OWN.iter().any(|own| name.starts_with(own))
}

/// Returns the headers of the request to the engine, whose body has this length.
pub fn to_engine(client: &HeaderMap, upstream: &Upstream, length: usize) -> HeaderMap {
    // `Accept-Encoding` is removed so that engines do not compress streams; [`keep_encodings`] gives it to
    // files.
    let mut headers = HeaderMap::with_capacity(client.len() + 2);
    headers.insert(header::HOST, upstream.host().clone());
    if let Some(key) = upstream.authorization() {
        headers.insert(header::AUTHORIZATION, key.clone());
    }
    // A set, because a head may hold thousands of tokens, and each header line is looked up among them.
    // `Connection` may name further hop-by-hop lines (RFC 9110, section 7.6.1).
    let named: HashSet<String> = connection_tokens(client).map(str::to_ascii_lowercase).collect();
    let mut digits = itoa::Buffer::new();
    let length = digits.format(length);
    for (name, value) in client {
        let text = name.as_str();
        let is_kept = !is_hop_by_hop(text) && !OURS.contains(&text) && !is_own(text);
        if is_kept && !named.contains(text) {
            headers.append(name.clone(), value.clone());
        } else if *name == header::CONTENT_LENGTH && value.as_bytes() == length.as_bytes() {
            // The client's own line, where it is right; otherwise hyper makes one, which takes longer.
            headers.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in upstream.lines() {
        headers.insert(name.clone(), value.clone());
    }
    headers
}

/// Lets the engine compress its answer as the client allows.
pub(crate) fn keep_encodings(client: &HeaderMap, request: &mut HeaderMap) {
    for line in client.get_all(header::ACCEPT_ENCODING) {
        request.append(header::ACCEPT_ENCODING, line.clone());
    }
}

/// Tells a proxy before us not to collect a stream.
pub(crate) fn forbid_buffering(headers: &mut HeaderMap) {
    // nginx buffers a proxied answer unless this header says no.
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().trim_ascii_start());
    // Its first letter distinguishes it from the type of most answers.
    let kind = kind.filter(|kind| matches!(kind.first(), Some(b't' | b'T')));
    let kind = kind.and_then(|kind| kind.split_at_checked(EVENT_STREAM.len()));
    kind.is_some_and(|(kind, rest)| {
        kind.eq_ignore_ascii_case(EVENT_STREAM)
            && matches!(rest.trim_ascii_start().first(), None | Some(b';'))
    })
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub(super) fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::CONNECTION).into_iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',').map(str::trim))
}

#[cfg(test)]
mod tests {
    use plimsoll_engine::EngineAddress;

    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn the_engine_sees_its_own_host_and_key_and_no_hop_by_hop_line() {
        let upstream = Upstream::new(EngineAddress::Port(4242)).with_key("child");
        let client = map(&[
            ("host", "plimsoll"),
            ("authorization", "Bearer mine"),
            ("x-api-key", "mine"),
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("accept-encoding", "gzip"),
            ("cookie", "of=another program"),
            ("plimsoll-declined", "1"),
            ("x-plimsoll-heartbeat", "5"),
            ("traceparent", "00-1-2-01"),
            ("content-type", "application/json"),
        ]);
        assert_eq!(
            to_engine(&client, &upstream, 7),
            map(&[
                ("host", "127.0.0.1:4242"),
                ("authorization", "Bearer child"),
                ("traceparent", "00-1-2-01"),
                ("content-type", "application/json"),
            ])
        );
    }

    #[test]
    fn a_length_goes_to_the_engine_only_where_it_is_that_of_the_body() {
        let upstream = Upstream::new(EngineAddress::Port(1));
        let passed = |lines: &[(&'static str, &'static str)]| {
            let mut client = HeaderMap::new();
            for (name, value) in lines {
                client.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let headers = to_engine(&client, &upstream, 12);
            headers.get_all(header::CONTENT_LENGTH).into_iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(passed(&[("content-length", "12"), ("content-length", "12")]), ["12"]);
        for wrong in ["", "11", "012", "+12", "12, 12"] {
            assert_eq!(passed(&[("content-length", wrong)]), Vec::<HeaderValue>::new(), "{wrong}");
        }
    }

    #[test]
    fn an_event_stream_is_known_with_or_without_parameters() {
        assert!(is_event_stream(&map(&[("content-type", "Text/Event-Stream; charset=utf-8")])));
        for kind in ["text/event-stream", " text/event-stream ", "text/event-stream ;a"] {
            assert!(is_event_stream(&map(&[("content-type", kind)])), "{kind}");
        }
        for kind in ["application/json", "text/event-stream2", "text/event", "text/event-stream a", ""] {
            assert!(!is_event_stream(&map(&[("content-type", kind)])), "{kind}");
        }
    }

    /// Processor time of this thread for the head of a request with so many lines and connection tokens.
    fn cost(lines: usize, tokens: usize) -> u128 {
        let mut client = HeaderMap::new();
        for line in 0..lines {
            let name = HeaderName::from_bytes(format!("x-{line}").as_bytes()).unwrap();
            client.insert(name, HeaderValue::from_static("1"));
        }
        let named: Vec<String> = (0..tokens).map(|token| format!("t{token}")).collect();
        client.insert(header::CONNECTION, HeaderValue::from_str(&named.join(",")).unwrap());
        let upstream = Upstream::new(EngineAddress::Port(1));
        let now = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let nanoseconds = |time: rustix::time::Timespec| {
            u128::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
        };
        let once = || {
            let before = now();
            assert_eq!(to_engine(&client, &upstream, 0).len(), lines + 1);
            nanoseconds(now()) - nanoseconds(before)
        };
        (0..3).map(|_| once()).min().unwrap()
    }

    #[test]
    fn header_lines_times_connection_tokens_is_no_work() {
        let (one, hundred) = (cost(1, 8192), cost(100, 8192));
        assert!(hundred < 5 * one, "{one} ns for 1 line, {hundred} ns for 100");
    }
}
