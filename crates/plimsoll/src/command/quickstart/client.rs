//! HTTP client of the quickstart tour: one chat request, as any client sends it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

/// Tokens of an answer, few enough that the tour stays short.
const TOKENS: u32 = 16;
/// Fixed seed, so that every tour shows the same answers.
const SEED: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("cannot connect to {address}: {error}")]
    Connect {
        address: SocketAddr,
        error: std::io::Error,
    },
    #[error("the connection broke: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("cannot write the request: {0}")]
    Write(#[from] http::Error),
    #[error("the answer is not JSON: {0}")]
    Parse(#[from] serde_json::Error),
}

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

pub(super) async fn ask(address: SocketAddr, model: &str, question: &str) -> Result<Answer, AskError> {
    // The clock includes the connection and the wait for loading: that is the time that a user sees.
    let start = Instant::now();
    let connected = TcpStream::connect(address).await;
    let stream = connected.map_err(|error| AskError::Connect { address, error })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // A broken connection shows as an error of the request below.
    let connection = spawn_local(async move { drop(connection.await) });
    let request = Request::post("/v1/chat/completions")
        // hyper's low-level client adds no Host header, which HTTP/1.1 requires.
        .header(header::HOST, address.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(chat(model, question).to_string())))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    // The body is complete, and without this the connection would stay open for a next request.
    connection.abort();
    Ok(Answer {
        status,
        body: serde_json::from_slice(&body)?,
        took: start.elapsed(),
    })
}
