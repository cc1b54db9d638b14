//! Searches a JSON object for one key, backward from the end of the text.
//!
//! JSON can be read backwards: outside a string there is no quote, and inside one every quote is escaped. So
//! a model name behind a long prompt is found without reading the prompt. The first one found is the last in
//! the text, which is the one that counts.

use std::ops::Range;

use memchr::{memchr, memrchr};

use super::{LONGEST_MODEL, ModelKey};
use crate::rope::Rope;

/// Bytes at the end that are searched. Parameters and a few tools may follow the model.
const END: usize = 16 * 1024;

/// Returns the model if it is near the end of `body`.
///
/// Everything unusual is left to the forward search: an escape in a key or in the name, and malformed text.
// As in `quote::first_unescaped`.
#[inline(never)]
pub(super) fn model(body: &Rope) -> Option<ModelKey> {
    let start = body.len().saturating_sub(END);
    let text = body.copy(start..body.len());
    let place = last_model(&text)?;
    let name = &text[place.start + 1..place.end - 1];
    if name.len() > LONGEST_MODEL || memchr(b'\\', name).is_some() {
        return None;
    }
    Some(ModelKey {
        name: str::from_utf8(name).ok()?.to_owned(),
        place: start + place.start..start + place.end,
    })
}

/// Returns the position of the string that is the value of the last top-level `"model"`.
fn last_model(text: &[u8]) -> Option<Range<usize>> {
    let mut tokens = BackwardTokens { text, at: text.len() };
    let mut depth = 0_usize;
    // The value read last, if it is a string of the object itself.
    let mut value = None;
    loop {
        match (tokens.next()?, depth) {
            (JsonToken::Mark(b'}' | b']'), _) => {
                depth += 1;
                value = None;
            }
            (_, 0) => return None,
            (JsonToken::Mark(b'{' | b'['), _) => depth -= 1,
            (JsonToken::Mark(b':'), 1) => match tokens.next()? {
                JsonToken::Text(key) if &text[key.clone()] == b"\"model\"" => return value,
                JsonToken::Text(key) if memchr(b'\\', &text[key.clone()]).is_none() => value = None,
                _ => return None,
            },
            (JsonToken::Text(place), 1) => value = Some(place),
            (JsonToken::Mark(_), 1) => value = None,
            _ => {}
        }
    }
}

#[derive(Debug)]
enum JsonToken {
    /// A string, quotes included.
    Text(Range<usize>),
    /// Any other byte that is not white space.
    Mark(u8),
}

/// Tokens of `text`, read from its end. The bytes from `at` on have been read.
#[derive(Debug)]
struct BackwardTokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl BackwardTokens<'_> {
    fn next(&mut self) -> Option<JsonToken> {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let last = self.text[..self.at].iter().rposition(|byte| !is_space(byte))?;
        self.at = last;
        if self.text[last] != b'"' {
            return Some(JsonToken::Mark(self.text[last]));
        }
        while let Some(quote) = memrchr(b'"', &self.text[..self.at]) {
            self.at = quote;
            if !self.is_escaped(quote)? {
                return Some(JsonToken::Text(quote..last + 1));
            }
        }
        None
    }

    /// Returns `None` if the backslashes before the quote reach back to the start of `text`.
    fn is_escaped(&self, quote: usize) -> Option<bool> {
        let before = self.text[..quote].iter().rposition(|byte| *byte != b'\\')?;
        Some((quote - before - 1) % 2 == 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Option<&str> {
        last_model(text.as_bytes()).map(|place| &text[place])
    }

    #[test]
    fn the_model_is_read_from_an_end_whose_beginning_is_missing() {
        for text in [
            r#"{"model":"a"}"#,
            r#"of the prompt"}],"model":"a","stream":false}"#,
            r#"of the \"prompt\"" } ] , "model" : "a" , "stop":["}","\"","\\"], "x":{"model":"no"} }
"#,
            r#""model":"b","model":"a","n":-1.5e3,"y":null}"#,
            r#"\\\\","model":"a","s":"text \\\\"}"#,
        ] {
            assert_eq!(found(text), Some("\"a\""), "{text}");
        }
    }

    #[test]
    fn unusual_bodies_are_left_to_the_full_parse() {
        for text in [
            "",
            "null",
            r#"{"model":"a""#,
            r#"{"model":"a"} x"#,
            r#"{"model":7}"#,
            r#"{"model":["a"]}"#,
            r#"{"x":{"model":"a"}}"#,
            r#"{"model":"a","\u006dodel":"b"}"#,
            r#"no opening quote","x":1}"#,
            r#"\\\\"x","y":1}"#,
            "}}}}",
            "{{]]",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_at_all_are_read_without_a_panic(
            bytes in proptest::collection::vec(
                proptest::sample::select(b"{}[]\",:\\model 1\xff".to_vec()), 0..200),
        ) {
            last_model(&bytes);
        }
    }
}
