//! Finds the top-level key `"model"` in a JSON request body.
//!
//! The start of the body is searched while it arrives. If it has no such key, the end is searched backwards,
//! and then the rest. Clients write the key either first or after the messages.
//!
//! If the key occurs several times, the last one counts, as in the engine's JSON library (nlohmann::json).

use std::ops::Range;

mod backward;
mod quote;
mod walk;

use self::walk::KeyWalk;
use super::rope::Rope;

/// Limit on the length of a model name; a longer one matches no model.
const LONGEST_MODEL: usize = 4096;
/// Bytes of a body that are searched as they arrive.
const BEGINNING: usize = 64 * 1024;

/// A model's name, and the position of its string in the body, quotes included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelKey {
    pub name: String,
    pub place: Range<usize>,
}

/// Search that continues while the body arrives.
#[derive(Debug, Default)]
pub(crate) struct ModelKeySearch {
    walk: KeyWalk,
    arrived: usize,
}

impl ModelKeySearch {
    /// Takes the next chunk.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        let is_in_step = self.walk.seen() == self.arrived;
        self.arrived += chunk.len();
        if !is_in_step {
            return;
        }
        let (beginning, rest) = chunk.split_at(chunk.len().min(BEGINNING.saturating_sub(self.walk.seen())));
        self.walk.feed(beginning);
        // Behind a model that was found early the search continues: another key may follow, and the last
        // counts.
        if self.walk.has_found() {
            self.walk.feed(rest);
        }
    }

    /// Returns the model that `body` names, after all its chunks were fed.
    pub(crate) fn finish(mut self, body: &Rope) -> Option<ModelKey> {
        let unseen = body.slice(self.walk.seen()..body.len());
        if unseen.is_empty() {
            return self.walk.finish();
        }
        backward::model(body).or_else(|| {
            unseen.chunks().for_each(|chunk| self.walk.feed(chunk));
            self.walk.finish()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::rope::tests::rope_of;
    use super::walk::tests::any_json;
    use super::*;

    fn search(text: &str, chunk: usize) -> Option<ModelKey> {
        let body = rope_of(text.as_bytes(), &[chunk]);
        let mut search = ModelKeySearch::default();
        body.chunks().for_each(|chunk| search.feed(chunk));
        search.finish(&body)
    }

    /// More than is walked while it arrives, and more than the end that is read backwards.
    fn long() -> String {
        "a \\\"long\\\" prompt, ".repeat(5000)
    }

    #[test]
    fn the_model_of_a_long_body_is_found_before_within_and_behind_the_prompt() {
        let prompt = long();
        for text in [
            format!(r#"{{"model":"a","prompt":"{prompt}"}}"#),
            format!(r#"{{"prompt":"{prompt}","model":"a","stream":true}}"#),
            format!(r#"{{"prompt":"{prompt}","model":"a","suffix":"{prompt}"}}"#),
            format!(r#"{{"model":"b","prompt":"{prompt}","model":"a"}}"#),
            format!(r#"{{"model":"b","prompt":"{prompt}","model":"a","suffix":"{prompt}"}}"#),
            format!(r#"{{"prompt":"{prompt}","model":"a","suffix":"never ends"#),
        ] {
            let named = search(&text, 10_000).unwrap();
            assert_eq!(&text[named.place], r#""a""#);
        }
    }

    #[test]
    fn a_last_model_that_is_no_string_is_none_in_a_long_body_too() {
        let text = format!(r#"{{"model":"b","prompt":"{}","model":7}}"#, long());
        assert_eq!(search(&text, 10_000), None);
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_wherever_a_long_prompt_stands(
            pairs in proptest::collection::vec(
                (prop_oneof![Just("model".to_owned()), "[a-z\"\\\\]{0,6}"], any_json()), 0..6),
            at in 0_usize..6,
            chunk in 1000_usize..100_000,
        ) {
            let mut fields: Vec<_> = pairs.iter()
                .map(|(key, value)| format!("{}: {value}", json!(key)))
                .collect();
            fields.insert(at.min(fields.len()), format!("\"prompt\":\"{}\"", long()));
            let text = format!("{{{}}}", fields.join(" ,"));
            let parsed: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(
                search(&text, chunk).map(|named| named.name),
                parsed["model"].as_str().map(str::to_owned)
            );
        }
    }
}
