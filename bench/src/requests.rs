//! Builds the HTTP requests that the benchmarks send.
//!
//! `messages` precedes `model`, as in the OpenAI client for Python, except where noted. The prompt has the
//! escapes of ordinary text.

const PARAGRAPH: &str =
    "The mark on a ship's hull says how deep she may be loaded; \\\"no deeper\\\", says the law.\\n";

/// The API key of every request, as clients send one whether a server asks for it or not.
pub(crate) const KEY: &str = "sk-bench-0123456789abcdef0123456789abcdef";

pub(crate) fn chat(model: &str, body_bytes: usize) -> Vec<u8> {
    post(&body(model, body_bytes, false))
}

/// The same, by a client that names the model before the messages.
pub(crate) fn chat_model_first(model: &str, body_bytes: usize) -> Vec<u8> {
    let model = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":""#);
    post(&fill(&model, r#""}],"stream":false}"#, body_bytes))
}

pub(crate) fn chat_stream(model: &str, body_bytes: usize) -> Vec<u8> {
    post(&body(model, body_bytes, true))
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

fn post(body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    (head + body).into_bytes()
}

fn body(model: &str, bytes: usize, stream: bool) -> String {
    let head = r#"{"messages":[{"role":"user","content":""#;
    let tail = format!(r#""}}],"model":"{model}","stream":{stream}}}"#);
    fill(head, &tail, bytes)
}

/// A body of about the requested length: never longer, and shorter by less than a paragraph.
fn fill(head: &str, tail: &str, bytes: usize) -> String {
    let paragraphs = bytes.saturating_sub(head.len() + tail.len()) / PARAGRAPH.len();
    [head, &PARAGRAPH.repeat(paragraphs), tail].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_of_about_the_requested_length() {
        for bytes in [400, 200_000] {
            let body = body("alpha", bytes, true);
            let json: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(json["model"], "alpha");
            assert!(body.len() <= bytes && body.len() + PARAGRAPH.len() > bytes);
        }
    }
}
