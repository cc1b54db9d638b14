//! Replaces the model's name in a request body, for clients that use an alias.
//!
//! The engine expects the model's own name. Every other byte stays as the client sent it.

use std::ops::Range;

use bytes::Bytes;

use super::rope::Rope;

/// Returns `body` with the bytes at `place` replaced by `text`.
pub(crate) fn splice(body: &Rope, place: Range<usize>, text: impl Into<Bytes>) -> Rope {
    let mut spliced = body.slice(0..place.start);
    spliced.push(text.into());
    spliced.append(body.slice(place.end..body.len()));
    spliced
}

/// Returns `name` as a JSON string.
pub(crate) fn json_string(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::model_key::ModelKeySearch;
    use super::super::rope::tests::rope_of;
    use super::*;

    #[test]
    fn only_the_name_changes_for_every_chunk_size() {
        let text = br#"{"messages":[1, 2],  "model":"alias","x":"\u0041"}"#;
        for size in 1..=text.len() {
            let body = rope_of(text, &[size]);
            let mut search = ModelKeySearch::default();
            body.chunks().for_each(|chunk| search.feed(chunk));
            let place = search.finish(&body).unwrap().place;
            let body = splice(&body, place, json_string("a \"real\" name"));
            assert_eq!(
                body.copy(0..body.len()),
                br#"{"messages":[1, 2],  "model":"a \"real\" name","x":"\u0041"}"#
            );
        }
    }
}
