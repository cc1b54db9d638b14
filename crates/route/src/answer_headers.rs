//! Removes headers that are unsafe for a whole origin from an engine's HTTP answer, before it goes to the
//! client.
//!
//! The server starts engines, but does not trust them with its own origin. Headers for a whole origin are
//! removed, and a document of an engine gets an opaque origin.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::headers::{connection_tokens, is_hop_by_hop, is_own};
use super::upstream::Upstream;

/// Beginning of the headers that grant pages of other origins something. `--allow-origin` alone does.
const CORS: &str = "access-control-";

/// Headers that browsers apply to every page of an origin, or that a proxy before this server takes for an
/// order.
///
/// DECISION: removed and not refused, because engines send some of them in good faith. A challenge would open
/// a dialogue in which the user types what is then sent to every engine of this origin.
///
/// DECISION: texts, because an array of `HeaderName` is made anew, and dropped, for each header that is
/// looked up in it.
const OF_ORIGIN: [&str; 25] = [
    "accept-ch",
    "alt-svc",
    "authentication-info",
    "clear-site-data",
    "critical-ch",
    "expect-ct",
    "nel",
    "origin-agent-cluster",
    "origin-trial",
    "public-key-pins",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "secure-session-registration",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "set-login",
    "shared-storage-write",
    "strict-transport-security",
    "timing-allow-origin",
    "use-as-dictionary",
    "www-authenticate",
    "x-accel-redirect",
    "x-sendfile",
];

/// Headers of nearly every answer, none of which is removed.
const USUAL: [&str; 4] = ["content-length", "content-type", "date", "server"];

/// An origin that is nobody's: no storage, no service worker, no request that this server takes for one of
/// its own page.
const SANDBOX: &str = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads";
/// Types of which no browser makes a document with scripts.
const INERT: [&[u8]; 2] = [b"application/json", b"text/event-stream"];

/// Removes headers of an answer that do not go to the client.
pub(crate) fn to_client(headers: &mut HeaderMap, from: &Upstream) {
    // Another host of the fleet has removed its engine's, and speaks for itself.
    let is_ours = |name: &str| is_own(name) && !from.is_host();
    let is_removed = |name: &&HeaderName| {
        let text = name.as_str();
        !USUAL.contains(&text)
            && (is_hop_by_hop(text) || OF_ORIGIN.contains(&text) || text.starts_with(CORS) || is_ours(text))
    };
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

/// Gives a document of an engine an origin of nobody, unless it has one of its own already.
pub(crate) fn confine(headers: &mut HeaderMap) {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_inert = kind.is_some_and(|kind| {
        let begins = |inert: &&[u8]| kind.get(..inert.len()).is_some_and(|it| it.eq_ignore_ascii_case(inert));
        // As nearly every engine writes it.
        kind.starts_with(INERT[0]) || INERT.iter().any(begins)
    });
    if !is_inert {
        // The engine's own policy stays: browsers apply all of them.
        headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
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

#[cfg(test)]
mod tests {
    use plimsoll_engine::EngineAddress;

    use super::*;
    use crate::HOP;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn upstream() -> Upstream {
        Upstream::new(EngineAddress::Port(1))
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
        to_client(&mut engine, &upstream());
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
            to_client(&mut engine, &upstream());
            let seen: Vec<_> = engine.get_all(header::CONTENT_LENGTH).iter().collect();
            assert_eq!(seen, passed.into_iter().collect::<Vec<_>>(), "{lines:?}");
        }
    }

    #[test]
    fn nothing_that_a_browser_applies_to_the_whole_origin_comes_from_an_engine() {
        let mut engine = map(&[
            ("set-cookie", "a=b; Path=/"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("strict-transport-security", "max-age=9999999"),
            ("alt-svc", "h3=\":443\""),
            ("www-authenticate", "Basic realm=\"plimsoll\""),
            ("access-control-allow-private-network", "true"),
            ("x-accel-redirect", "/etc/passwd"),
            ("nel", "{}"),
            ("report-to", "{}"),
            ("x-request-id", "7"),
        ]);
        to_client(&mut engine, &upstream());
        assert_eq!(engine, map(&[("x-request-id", "7")]));
    }

    #[test]
    fn headers_of_this_server_are_its_own() {
        let mut engine = map(&[
            ("plimsoll-declined", "1"),
            ("plimsoll-host", "box-2"),
            ("plimsoll-anything", "1"),
            ("x-plimsoll-model", "other"),
        ]);
        to_client(&mut engine, &upstream());
        assert_eq!(engine, HeaderMap::new());
        let host = upstream().with_lines(vec![(HOP, HeaderValue::from_static("1"))]);
        let mut answer = map(&[("plimsoll-host", "box-2"), ("set-cookie", "a=b")]);
        to_client(&mut answer, &host);
        assert_eq!(answer, map(&[("plimsoll-host", "box-2")]));
    }

    #[test]
    fn a_document_is_confined_whatever_it_calls_itself_and_json_is_none() {
        for kind in ["text/html", "image/svg+xml", "application/xhtml+xml", "text/xml", "text/plain", "x", ""]
        {
            let mut engine = map(&[("content-type", kind), ("content-security-policy", "default-src *")]);
            confine(&mut engine);
            let policies: Vec<_> = engine.get_all(header::CONTENT_SECURITY_POLICY).iter().collect();
            assert_eq!(policies, ["default-src *", SANDBOX], "{kind}");
            assert_eq!(engine[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        }
        assert!(!SANDBOX.contains("same-origin"));
        let mut bare = HeaderMap::new();
        confine(&mut bare);
        assert!(bare.contains_key(header::CONTENT_SECURITY_POLICY));
        for kind in ["application/json; charset=utf-8", "Text/Event-Stream"] {
            let mut engine = map(&[("content-type", kind)]);
            confine(&mut engine);
            assert_eq!(engine.len(), 1, "{kind}");
        }
    }
}
