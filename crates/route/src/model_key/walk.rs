//! Reads a JSON object chunk by chunk, and looks for one key.
//!
//! It is no full parser: it builds no values, and it skips nested values by counting brackets.

use std::borrow::Cow;

use memchr::memchr;

use super::quote::closing_quote;
use super::{LONGEST_MODEL, ModelKey};

/// A key longer than this, escapes included, is not `"model"`: five characters of six bytes each.
const LONGEST_KEY: usize = 30;
/// Length of `model` with one of its letters escaped: an escape of a letter has six bytes.
const SHORTEST_ESCAPED: usize = 10;

/// Position of the reader in the JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonPosition {
    BeforeObject,
    BeforeKey,
    Key,
    AfterKey,
    BeforeValue,
    Scalar,
    Text,
    Model,
    Nested,
    NestedText,
    /// Past the object, or nothing that this walk understands.
    Over,
}

/// Incremental reader. Feed it the chunks in order.
#[derive(Debug)]
pub(super) struct KeyWalk {
    at: JsonPosition,
    depth: u32,
    /// The chunk before ended in an odd number of backslashes inside a string.
    escaped: bool,
    /// The key or model name being read, raw.
    raw: Vec<u8>,
    raw_limit: usize,
    key_is_model: bool,
    seen: usize,
    model_starts: usize,
    found: Option<ModelKey>,
}

impl Default for KeyWalk {
    fn default() -> Self {
        Self {
            at: JsonPosition::BeforeObject,
            depth: 0,
            escaped: false,
            raw: Vec::new(),
            raw_limit: 0,
            key_is_model: false,
            seen: 0,
            model_starts: 0,
            found: None,
        }
    }
}

impl KeyWalk {
    // As in `quote::first_unescaped`.
    #[inline(never)]
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        let mut at = 0;
        while at < chunk.len() && self.at != JsonPosition::Over {
            at += self.step(&chunk[at..], self.seen + at);
        }
        self.seen += chunk.len();
    }

    /// Returns the number of bytes fed.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Returns true if the bytes so far name a model. A later key may still replace it.
    pub(super) fn has_found(&self) -> bool {
        self.found.is_some()
    }

    pub(super) fn finish(self) -> Option<ModelKey> {
        self.found
    }

    /// Takes one step into `text`, which starts at `offset` in the body; returns the number of bytes read.
    fn step(&mut self, text: &[u8], offset: usize) -> usize {
        match self.at {
            JsonPosition::BeforeObject => self.skip_to(text, |byte| match byte {
                b'{' => Some(JsonPosition::BeforeKey),
                // RFC 8259 lets a parser ignore a byte order mark, and some clients send one.
                b' ' | b'\t' | b'\r' | b'\n' | 0xEF | 0xBB | 0xBF => None,
                _ => Some(JsonPosition::Over),
            }),
            JsonPosition::BeforeKey => self.before_key(text),
            // Anything but white space before the colon is malformed, which the engine reports.
            JsonPosition::AfterKey => {
                self.skip_to(text, |byte| (byte == b':').then_some(JsonPosition::BeforeValue))
            }
            JsonPosition::BeforeValue => self.before_value(text, offset),
            // A number, `true`, `false` or `null`: none of them holds a comma or a brace.
            JsonPosition::Scalar => match text.iter().position(|byte| matches!(byte, b',' | b'}')) {
                Some(end) => {
                    self.at = JsonPosition::BeforeKey;
                    end
                }
                None => text.len(),
            },
            JsonPosition::Nested => self.nested(text),
            JsonPosition::Key | JsonPosition::Text | JsonPosition::Model | JsonPosition::NestedText => {
                self.in_string(text, offset)
            }
            JsonPosition::Over => text.len(),
        }
    }

    fn skip_to(&mut self, text: &[u8], next: impl Fn(u8) -> Option<JsonPosition>) -> usize {
        for (at, byte) in text.iter().enumerate() {
            if let Some(next) = next(*byte) {
                self.at = next;
                return at + 1;
            }
        }
        text.len()
    }

    fn before_key(&mut self, text: &[u8]) -> usize {
        // Cleared before the key begins, because a key may come in several chunks.
        self.record(LONGEST_KEY);
        self.skip_to(text, |byte| match byte {
            b'"' => Some(JsonPosition::Key),
            b' ' | b'\t' | b'\r' | b'\n' | b',' => None,
            _ => Some(JsonPosition::Over),
        })
    }

    fn before_value(&mut self, text: &[u8], offset: usize) -> usize {
        let Some(skipped) = text.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            return text.len();
        };
        // Of equal keys llama-server's parser (nlohmann::json) takes the last, so an earlier name is
        // forgotten.
        if self.key_is_model {
            self.found = None;
        }
        match text[skipped] {
            b'"' if self.key_is_model => {
                self.record(LONGEST_MODEL);
                self.model_starts = offset + skipped;
                self.at = JsonPosition::Model;
            }
            b'"' => {
                // A limit of 0 records nothing: this may be a prompt of megabytes.
                self.record(0);
                self.at = JsonPosition::Text;
            }
            b'{' | b'[' => {
                self.depth = 1;
                self.at = JsonPosition::Nested;
            }
            _ => {
                self.at = JsonPosition::Scalar;
                return skipped;
            }
        }
        skipped + 1
    }

    fn nested(&mut self, text: &[u8]) -> usize {
        for (at, byte) in text.iter().enumerate() {
            match byte {
                b'"' => {
                    self.record(0);
                    self.at = JsonPosition::NestedText;
                    return at + 1;
                }
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => {
                    // Never below 0, because the state is left as soon as the outermost bracket closes.
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.at = JsonPosition::BeforeKey;
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        text.len()
    }

    fn in_string(&mut self, text: &[u8], offset: usize) -> usize {
        let close = closing_quote(text, &mut self.escaped);
        let inside = &text[..close.unwrap_or(text.len())];
        if self.raw.len() <= self.raw_limit && self.raw_limit > 0 {
            // One byte more than allowed is kept: it says that the string is too long.
            let room = self.raw_limit + 1 - self.raw.len();
            self.raw.extend_from_slice(&inside[..inside.len().min(room)]);
        }
        let Some(close) = close else {
            return text.len();
        };
        self.string_ends(offset + close + 1);
        close + 1
    }

    fn string_ends(&mut self, end: usize) {
        self.at = match self.at {
            JsonPosition::Key => {
                self.key_is_model = self.is_model();
                JsonPosition::AfterKey
            }
            JsonPosition::Model => {
                let place = self.model_starts..end;
                self.found = self.recorded().map(|name| ModelKey { name: name.into_owned(), place });
                JsonPosition::BeforeKey
            }
            JsonPosition::NestedText => JsonPosition::Nested,
            _ => JsonPosition::BeforeKey,
        };
    }

    fn record(&mut self, limit: usize) {
        self.raw.clear();
        self.raw_limit = limit;
    }

    /// True if the recorded key is `model`, also where escapes spell it.
    fn is_model(&self) -> bool {
        match self.raw.len() {
            0..SHORTEST_ESCAPED => self.raw == b"model",
            _ => self.recorded().as_deref() == Some("model"),
        }
    }

    /// Returns the recorded string, decoded; `None` when it was too long or is not a JSON string.
    fn recorded(&self) -> Option<Cow<'_, str>> {
        if self.raw.len() > self.raw_limit {
            return None;
        }
        if memchr(b'\\', &self.raw).is_none() {
            return std::str::from_utf8(&self.raw).ok().map(Cow::Borrowed);
        }
        let quoted = [b"\"", self.raw.as_slice(), b"\""].concat();
        serde_json::from_slice(&quoted).ok().map(Cow::Owned)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn walk(text: &[u8], chunk: usize) -> Option<ModelKey> {
        let mut walk = KeyWalk::default();
        text.chunks(chunk.max(1)).for_each(|chunk| walk.feed(chunk));
        walk.finish()
    }

    fn name(text: &str) -> Option<String> {
        let whole = walk(text.as_bytes(), text.len());
        for chunk in 1..text.len().min(40) {
            assert_eq!(walk(text.as_bytes(), chunk), whole, "chunks of {chunk} of {text}");
        }
        whole.map(|named| named.name)
    }

    #[test]
    fn finds_the_model_wherever_it_stands() {
        for text in [
            r#"{"model":"a"}"#,
            r#" { "messages" : [ {"model":"no","content":"{\"model\":\"no\"}"} ] , "model" : "a" } "#,
            r#"{"stream":true,"n":1.5e3,"x":null,"model":"a","stop":["\\","\"","}"]}"#,
            r#"{"mod\u0065l":"\u0061"}"#,
            "\u{feff}{\"model\":\"a\"}",
            r#"{"model":"a","prompt":"never ends"#,
            r#"{"model":"b","model":"a"}"#,
            r#"{"model":{"model":"b"},"model":"a"}"#,
        ] {
            assert_eq!(name(text).as_deref(), Some("a"), "{text}");
        }
    }

    #[test]
    fn finds_none_where_the_engine_would_find_none() {
        for text in [
            "",
            "[]",
            "null",
            r#"[{"model":"a"}]"#,
            r#""model""#,
            r#"{"model":7}"#,
            r#"{"model":"a","model":null}"#,
            r#"{"x":{"model":"a"}}"#,
            r#"{"model":"a"#,
            r#"{"model":"\x"}"#,
        ] {
            assert_eq!(name(text), None, "{text}");
        }
        let long = format!(r#"{{"model":"{}"}}"#, "a".repeat(LONGEST_MODEL + 1));
        assert_eq!(walk(long.as_bytes(), 100), None);
    }

    #[test]
    fn the_place_is_that_of_the_string_with_its_quotes() {
        let text = br#"{"x":1, "model" :  "a\"b" }"#;
        for chunk in 1..text.len() {
            let named = walk(text, chunk).unwrap();
            assert_eq!(&text[named.place], br#""a\"b""#);
        }
    }

    pub(in super::super) fn any_json() -> impl Strategy<Value = Value> {
        let text = prop_oneof![Just("model".to_owned()), "[a-z\"\\\\{}\\[\\],:é\\n]{0,8}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::vec((text.clone(), inner), 0..6)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_every_object(
            pairs in proptest::collection::vec(
                (prop_oneof![Just("model".to_owned()), "[a-z\"\\\\]{0,6}"], any_json()), 0..6),
            pretty: bool,
            chunk in 1_usize..64,
        ) {
            // Built by hand, so that keys may repeat.
            let print = |value: &Value| if pretty { format!("{value:#}") } else { value.to_string() };
            let fields: Vec<_> = pairs.iter()
                .map(|(key, value)| format!("{}: {}", json!(key), print(value)))
                .collect();
            let text = format!("{{{}}}", fields.join(" ,"));
            let parsed: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(
                walk(text.as_bytes(), chunk).map(|named| named.name),
                parsed["model"].as_str().map(str::to_owned)
            );
        }

        #[test]
        fn any_bytes_at_all_are_walked_without_a_panic(
            bytes in proptest::collection::vec(
                proptest::sample::select(b"{}[]\",:\\model 1\xff".to_vec()), 0..200),
            chunk in 1_usize..20,
        ) {
            walk(&bytes, chunk);
        }
    }
}
