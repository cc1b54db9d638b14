//! Reads a JSON object from its end, for the sake of one key.
//!
//! JSON can be read backwards: outside a string there is no quote, and inside one every quote is escaped. So a
//! model behind a long prompt is found without a look at the prompt, and the first one met is the last one,
//! which wins. Whatever is unusual (an escape in a key or in the name, no model near the end, text that is
//! no JSON) is left to the walk.

use std::ops::Range;

use memchr::{memchr, memrchr};

use super::{LONGEST_MODEL, Named};
use crate::route::rope::Rope;

/// Bytes of the end that are looked at: room for the parameters, and some tools, that follow the model.
const END: usize = 16 * 1024;

/// Returns the model if it stands near the end of `body`.
pub(super) fn model(body: &Rope) -> Option<Named> {
    let start = body.len().saturating_sub(END);
    let text = body.copy(start..body.len());
    let place = last_model(&text)?;
    let name = &text[place.start + 1..place.end - 1];
    if name.len() > LONGEST_MODEL || memchr(b'\\', name).is_some() {
        return None;
    }
    Some(Named {
        name: str::from_utf8(name).ok()?.to_owned(),
        place: start + place.start..start + place.end,
    })
}

/// Returns where the string stands that is the value of the last top-level `"model"`.
fn last_model(text: &[u8]) -> Option<Range<usize>> {
    let mut tokens = Backwards { text, at: text.len() };
    let mut depth = 0_usize;
    // The value read last, where it is a string of the object itself.
    let mut value = None;
    loop {
        match (tokens.next()?, depth) {
            (Token::Mark(b'}' | b']'), _) => {
                depth += 1;
                value = None;
            }
            (_, 0) => return None,
            (Token::Mark(b'{' | b'['), _) => depth -= 1,
            (Token::Mark(b':'), 1) => match tokens.next()? {
                Token::Text(key) if &text[key.clone()] == b"\"model\"" => return value,
                Token::Text(key) if memchr(b'\\', &text[key.clone()]).is_none() => value = None,
                _ => return None,
            },
            (Token::Text(place), 1) => value = Some(place),
            (Token::Mark(_), 1) => value = None,
            _ => {}
        }
    }
}

enum Token {
    /// A string, quotes included.
    Text(Range<usize>),
    /// Any other byte that is no space.
    Mark(u8),
}

/// The tokens of `text` from its end on; what stands at `at` and beyond has been read.
struct Backwards<'a> {
    text: &'a [u8],
    at: usize,
}

impl Backwards<'_> {
    fn next(&mut self) -> Option<Token> {
        let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let last = self.text[..self.at].iter().rposition(|byte| !space(byte))?;
        self.at = last;
        if self.text[last] != b'"' {
            return Some(Token::Mark(self.text[last]));
        }
        while let Some(quote) = memrchr(b'"', &self.text[..self.at]) {
            self.at = quote;
            if !self.is_escaped(quote)? {
                return Some(Token::Text(quote..last + 1));
            }
        }
        None
    }

    /// `None` when the backslashes before it go on where `text` begins.
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
    fn whatever_is_unusual_is_left_to_the_walk() {
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
