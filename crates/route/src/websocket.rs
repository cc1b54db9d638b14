//! Makes the handshake of a websocket (RFC 6455), the only protocol to which a connection may change.
//!
//! DECISION: every other `Upgrade` is ignored, as a server may (RFC 9110, section 7.8). After `h2c` an engine
//! would get requests again, which nobody would check.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::request::Parts;
use http::{Method, Version};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::headers::{connection_tokens, text};

const WEBSOCKET: &str = "websocket";
/// The version of RFC 6455; there is no other.
const VERSION: &str = "13";
/// Bytes of a key.
const KEY: usize = 16;
/// Suffix that the accepting side adds to the key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// True for a request that asks for a websocket in every word that it has to.
pub(crate) fn is_requested(head: &Parts) -> bool {
    let headers = &head.headers;
    let names_upgrade = || connection_tokens(headers).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let has_key = || text(headers, &SEC_WEBSOCKET_KEY).and_then(|key| STANDARD.decode(key).ok());
    // With another method the body could not be distinguished from the new protocol.
    head.method == Method::GET
        && head.version == Version::HTTP_11
        && is_named(headers)
        && names_upgrade()
        && text(headers, &SEC_WEBSOCKET_VERSION) == Some(VERSION)
        && has_key().is_some_and(|key| key.len() == KEY)
}

/// True if the engine accepts the websocket that the client has asked for.
pub(crate) fn is_accepted(client: &HeaderMap, engine: &HeaderMap) -> bool {
    let key = text(client, &SEC_WEBSOCKET_KEY).unwrap_or_default();
    let expected = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()));
    is_named(engine) && text(engine, &SEC_WEBSOCKET_ACCEPT) == Some(expected.as_str())
}

fn is_named(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(UPGRADE).into_iter();
    let named = lines.next().is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()));
    named && lines.next().is_none()
}

/// Names the change of protocol, which is between neighbours like every hop-by-hop line.
pub(crate) fn name(headers: &mut HeaderMap) {
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, section 1.3.
    const LINES: [(&str, &str); 4] = [
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
    ];

    fn head(lines: &[(&str, &str)]) -> Parts {
        let request = http::Request::builder();
        let request = lines.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_websocket_is_asked_for_in_every_word_or_not_at_all() {
        assert!(is_requested(&head(&LINES)));
        for (at, wrong) in
            [(0, "h2c"), (0, "websocket, h2c"), (0, "TLS/1.0"), (1, "close"), (2, "k"), (2, ""), (3, "8")]
        {
            let mut lines = LINES;
            lines[at].1 = wrong;
            assert!(!is_requested(&head(&lines)), "{lines:?}");
            let without: Vec<_> = LINES.iter().enumerate().filter(|(other, _)| *other != at).collect();
            assert!(!is_requested(&head(&without.into_iter().map(|(_, line)| *line).collect::<Vec<_>>())));
        }
        let twice = [LINES.as_slice(), &[("upgrade", "h2c")]].concat();
        assert!(!is_requested(&head(&twice)));
        let mut posted = head(&LINES);
        posted.method = Method::POST;
        assert!(!is_requested(&posted));
    }

    #[test]
    fn an_engine_accepts_the_websocket_of_this_key() {
        let accepts = |upgrade: &'static str, accept: &'static str| {
            let mut engine = HeaderMap::new();
            engine.insert(UPGRADE, HeaderValue::from_static(upgrade));
            engine.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static(accept));
            is_accepted(&head(&LINES).headers, &engine)
        };
        assert!(accepts("websocket", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(!accepts("h2c", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") && !accepts("websocket", "s"));
    }
}
