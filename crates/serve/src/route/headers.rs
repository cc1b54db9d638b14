//! HTTP headers that are passed between client and engine, in both directions.
//!
//! Hop-by-hop headers (RFC 9110 §7.6.1), `Origin` and CORS headers are removed, and the client's API key is
//! replaced by the engine's.

use std::collections::HashSet;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::upstream::Upstream;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Time between two comments of a stream that waits, or `off`.
pub(crate) const X_HEARTBEAT: HeaderName = HeaderName::from_static("x-plimsoll-heartbeat");
const EVENT_STREAM: &[u8] = b"text/event-stream";
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

const OURS: [HeaderName; 8] = [
    X_HEARTBEAT,
    header::HOST,
    header::CONTENT_LENGTH,
    header::AUTHORIZATION,
    X_API_KEY,
    header::EXPECT,
    header::ACCEPT_ENCODING,
    header::ORIGIN,
];

const CORS: [HeaderName; 6] = [
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
];

/// Returns the headers of the request to the engine, whose body has this length.
pub(crate) fn to_engine(client: &HeaderMap, upstream: &Upstream, length: usize) -> HeaderMap {
    // `Accept-Encoding` is removed so that engines do not compress streams.
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
        if !HOP_BY_HOP.contains(name) && !OURS.contains(name) && !named.contains(name.as_str()) {
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

/// Removes headers of the engine's answer that do not go to the client.
pub(crate) fn to_client(headers: &mut HeaderMap) {
    // An engine's CORS answer would grant pages more than `--allow-origin` does.
    let is_removed = |name: &&HeaderName| HOP_BY_HOP.contains(name) || CORS.contains(name);
    let mut removed: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
    if removed.contains(&header::CONNECTION) {
        removed.extend(connection_tokens(headers).filter_map(|token| token.parse().ok()));
    }
    for name in &removed {
        headers.remove(name);
    }
    if !has_plain_length(headers) {
        let length = length(headers);
        headers.remove(header::CONTENT_LENGTH);
        headers.extend(length.map(|length| (header::CONTENT_LENGTH, HeaderValue::from(length))));
    }
}

/// True if the headers name no length, or one that cannot be read in two ways.
fn has_plain_length(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).into_iter().map(HeaderValue::as_bytes);
    match (lines.next(), lines.next()) {
        (None, _) => true,
        (Some(text @ [b'1'..=b'9', ..] | text @ b"0"), None) => {
            text.len() < 20 && text.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

/// The length that the headers name; `None` if they name none, or several. hyper reads `3, 3` as 3, and a
/// proxy passes only the 3 on (RFC 9110 section 8.6).
fn length(headers: &HeaderMap) -> Option<u64> {
    let lines = headers.get_all(header::CONTENT_LENGTH).into_iter();
    let mut lengths = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(|text| {
        let text = str::from_utf8(text).ok()?.trim();
        // `parse` alone would take a sign.
        text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first)
}

/// Passes an upgrade on, which is between neighbours like every hop-by-hop line.
pub(crate) fn keep_upgrade(from: &HeaderMap, to: &mut HeaderMap) {
    if let Some(protocol) = from.get(header::UPGRADE) {
        to.insert(header::UPGRADE, protocol.clone());
        to.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Tells a proxy before us not to collect a stream.
pub(crate) fn forbid_buffering(headers: &mut HeaderMap) {
    // nginx buffers a proxied answer unless this header says no.
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().trim_ascii_start());
    // Its first letter tells it from the type of most answers.
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

fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::CONNECTION).into_iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',').map(str::trim))
}

#[cfg(test)]
mod tests {
    use plimsoll_launch::EngineAddress;

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
    fn the_client_sees_no_hop_by_hop_line_and_no_cors_of_the_engine() {
        let mut engine = map(&[
            ("connection", "keep-alive, x-inner"),
            ("x-inner", "1"),
            ("keep-alive", "timeout=5"),
            ("access-control-allow-origin", "*"),
            ("server", "llama.cpp"),
        ]);
        to_client(&mut engine);
        assert_eq!(engine, map(&[("server", "llama.cpp")]));
    }

    #[test]
    fn the_client_sees_one_length_or_none() {
        for (lines, passed) in [
            (&["5"][..], Some("5")),
            (&["3, 3"], Some("3")),
            (&["3", " 03 "], Some("3")),
            (&["03"], Some("3")),
            (&["0"], Some("0")),
            (&["1x"], None),
            (&["9999999999999999999"], Some("9999999999999999999")),
            (&["18446744073709551615"], Some("18446744073709551615")),
            (&["3", "4"], None),
            (&["+3"], None),
            (&["3,"], None),
            (&[""], None),
            (&["18446744073709551616"], None),
        ] {
            let mut engine = HeaderMap::new();
            for line in lines {
                engine.append(header::CONTENT_LENGTH, HeaderValue::from_static(line));
            }
            to_client(&mut engine);
            let seen: Vec<_> = engine.get_all(header::CONTENT_LENGTH).iter().collect();
            assert_eq!(seen, passed.into_iter().collect::<Vec<_>>(), "{lines:?}");
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
