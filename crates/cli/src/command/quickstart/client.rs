//! Sends the chat requests of `plimsoll quickstart` over HTTP, as any client would.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::{Request, StatusCode, header};
use http_body_util::Full;
use plimsoll_http::{HttpClient, collect_body};
use serde_json::{Value, json};

use crate::report::ErrorReport;

/// Tokens of an answer, few enough that the tour stays short.
const TOKENS: u32 = 16;
/// Fixed seed, so that every tour shows the same answers.
const SEED: u32 = 3;
/// Largest answer that is read: the tokens of a tour are a few hundred bytes.
const MOST: usize = 1 << 20;

/// A chat answer and its response time.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Value,
    pub(super) took: Duration,
}

impl Answer {
    /// Text of the model's reply.
    pub(super) fn text(&self) -> Option<&str> {
        self.body["choices"][0]["message"]["content"].as_str()
    }
}

/// Body of a chat request with one question, used by the tour and its curl line.
pub(super) fn chat(model: &str, question: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": question }], "max_tokens": TOKENS, "seed": SEED })
}

pub(super) async fn ask(address: SocketAddr, model: &str, question: &str) -> Result<Answer, ErrorReport> {
    // The clock includes the connection and the wait for loading: that is the time that a user sees.
    let start = Instant::now();
    let request = Request::post("/v1/chat/completions")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(chat(model, question).to_string()))?;
    let mut client = HttpClient::new(address.ip().to_string(), address.port());
    let answer = client.send(request).await?;
    let status = answer.status();
    Ok(Answer {
        status,
        body: serde_json::from_slice(&collect_body(answer, MOST).await?)?,
        took: start.elapsed(),
    })
}
