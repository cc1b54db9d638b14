//! The query of a request line: `?model=…&autoload=…`.

use std::borrow::Cow;

/// Returns the decoded value of the first parameter called `name`.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    query?.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key)? == name).then(|| decode(value)).flatten()
    })
}

/// Decodes `%XX` and `+`; `None` when what comes out is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Some(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    decode_path(&spaced).map(|decoded| Cow::Owned(decoded.into_owned()))
}

/// Decodes `%XX` only, as in a path; a `%` that starts no such triple stays.
pub(crate) fn decode_path(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let value = (*byte == b'%')
            .then(|| hex_pair(bytes.get(at + 1..at + 3)?))
            .flatten();
        decoded.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn hex_pair(pair: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_the_first_wins() {
        let query = Some("a=1&model=user%2Fm%3AQ4+K&model=b&%6Do=x");
        assert_eq!(parameter(query, "model").as_deref(), Some("user/m:Q4 K"));
        assert_eq!(parameter(query, "mo").as_deref(), Some("x"));
        assert_eq!(parameter(query, "none"), None);
        assert_eq!(parameter(Some("reload"), "reload").as_deref(), Some(""));
        assert_eq!(parameter(None, "model"), None);
    }

    #[test]
    fn broken_escapes_stay_and_broken_text_is_none() {
        assert_eq!(decode("100%").as_deref(), Some("100%"));
        assert_eq!(decode("%zz%4").as_deref(), Some("%zz%4"));
        assert_eq!(decode("%ff"), None);
        assert_eq!(decode_path("a+b%20c").as_deref(), Some("a+b c"));
    }
}
