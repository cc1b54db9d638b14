//! Parser of a server's error responses: OpenAI's error object, and the reasons that plimsoll adds to it.

use std::fmt;

use serde_json::Value;

const LONGEST_TEXT: usize = 1200;
const LONGEST_CODE: usize = 60;
/// Depth limit of the tree of reasons.
const MOST_DEPTH: usize = 8;

/// Error response of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadRefusals {
    /// The server's error code, if it has one in words.
    pub(super) code: Option<String>,
    text: String,
}

impl LoadRefusals {
    /// Reads the body of a response, of whatever form.
    pub(super) fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            // A proxy in front of the server may answer with HTML; its text is better than nothing.
            Ok(body) if !body["error"].is_null() => {
                Self { code: code(&body["error"]), text: reported(&body["error"]) }
            }
            _ => Self { code: None, text: cut(String::from_utf8_lossy(body).into_owned()) },
        }
    }
}

impl fmt::Display for LoadRefusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The error code in words. llama-server puts a number into `code`, and the word into `type`.
fn code(error: &Value) -> Option<String> {
    let code = error["code"].as_str().or_else(|| error["type"].as_str())?;
    (code.len() <= LONGEST_CODE).then(|| code.to_owned())
}

/// The message and its reasons, one line each.
pub(super) fn reported(error: &Value) -> String {
    // The message has the first cause, which stands below.
    let stated = error["reason"]["text"].as_str().or_else(|| error["message"].as_str());
    let Some(message) = stated.or_else(|| error.as_str()) else {
        return cut(error.to_string());
    };
    let mut text = message.to_owned();
    add(&error["reason"]["because"], 1, &mut text);
    cut(text)
}

pub(super) fn cut(mut text: String) -> String {
    // `truncate` panics inside a character, so the cut moves back to a boundary.
    text.truncate(text.floor_char_boundary(LONGEST_TEXT));
    text
}

fn add(because: &Value, depth: usize, text: &mut String) {
    // The tree comes from the network: both its depth and its text are bounded.
    let reasons = because.as_array().filter(|_| depth <= MOST_DEPTH);
    for reason in reasons.into_iter().flatten() {
        if text.len() > LONGEST_TEXT {
            return;
        }
        if let Some(line) = reason["text"].as_str() {
            text.push('\n');
            text.push_str(&"  ".repeat(depth));
            text.push_str(line);
        }
        add(&reason["because"], depth + 1, text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_is_reported_with_its_reasons_and_never_at_length() {
        let error = json!({ "message": "no room: card 0", "code": "no_room", "reason": { "text": "no room", "because": [
            { "text": "card 0", "because": [{ "text": "2 GiB is held by others" }] }, { "text": "card 1" }] } });
        assert_eq!(reported(&error), "no room\n  card 0\n    2 GiB is held by others\n  card 1");
        assert_eq!(code(&error).as_deref(), Some("no_room"));
        assert_eq!(reported(&json!("plain")), "plain");
        assert_eq!(reported(&json!({ "a": 1 })), "{\"a\":1}");
        assert_eq!(reported(&json!({ "message": "é".repeat(2000) })).len(), LONGEST_TEXT);
        assert_eq!(
            code(&json!({ "code": 503, "type": "unavailable_error" })).as_deref(),
            Some("unavailable_error")
        );
        let deep =
            (0..100).fold(json!({}), |inner, _| json!({ "text": "x".repeat(100), "because": [inner] }));
        assert!(reported(&json!({ "message": "m", "reason": deep })).len() <= LONGEST_TEXT);
    }
}
