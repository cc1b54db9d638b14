//! HTTP client of a load test, with one persistent connection that is reopened if the server closes it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use plimsoll_http::{HttpClient, HttpClientError, collect_body};
use serde_json::Value;
use tokio::time::timeout;

use super::answer::{LoadAnswer, LoadFailure, StreamParser};
use super::refused::LoadRefusals;
use super::target::Target;

/// Size limit of a response that is not streamed.
const MOST_BODY: usize = 16 << 20;

/// A client with its own connection.
#[derive(Debug)]
pub struct Client {
    http: HttpClient,
    /// Path before that of a request.
    base: String,
    key: Option<HeaderValue>,
    /// Time limit of a whole answer.
    patience: Duration,
}

impl Client {
    pub fn new(target: &Target, key: Option<&str>, patience: Duration) -> Self {
        // A key that is no header value cannot be sent; the server then answers 401, which names the cause.
        let key = key.and_then(|key| HeaderValue::from_str(&format!("Bearer {key}")).ok());
        Self {
            http: HttpClient::new(target.host.clone(), target.port),
            base: target.base.clone(),
            key,
            patience,
        }
    }

    /// Sends a request and reads the stream to its end.
    pub async fn ask(&mut self, body: Bytes) -> Result<LoadAnswer, LoadFailure> {
        let patience = self.patience;
        let answer = timeout(patience, self.stream(body)).await;
        // HTTP/1.1 cannot skip the rest of a response, so a connection with an unread one cannot be reused.
        if !matches!(answer, Ok(Ok(_))) {
            self.http.disconnect();
        }
        answer.unwrap_or(Err(LoadFailure::Late))
    }

    async fn stream(&mut self, body: Bytes) -> Result<LoadAnswer, LoadFailure> {
        let start = Instant::now();
        let mut response = self.send(Method::POST, "/v1/chat/completions", body).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(LoadFailure::Malformed("it is one JSON document, although a stream was requested"));
        }
        let mut coming = StreamParser::default();
        while let Some(frame) = response.frame().await {
            let frame = frame.map_err(|_| LoadFailure::Broken)?;
            if let Some(bytes) = frame.data_ref() {
                coming.feed(bytes, start.elapsed())?;
            }
        }
        coming.finish(start.elapsed())
    }

    /// Reads a small response as JSON.
    pub async fn json(&mut self, method: Method, path: &str, body: Bytes) -> Result<Value, LoadFailure> {
        let patience = self.patience;
        let read = async {
            let response = self.send(method, path, body).await?;
            if !response.status().is_success() {
                return Err(refusal(response).await);
            }
            let bytes = collect_body(response, MOST_BODY).await.map_err(|_| LoadFailure::Broken)?;
            serde_json::from_slice(&bytes).map_err(|_| LoadFailure::Malformed("it is not JSON"))
        };
        let read = timeout(patience, read).await.unwrap_or(Err(LoadFailure::Late));
        if read.is_err() {
            self.http.disconnect();
        }
        read
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, LoadFailure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // A path alone gives the origin form that HTTP/1.1 servers expect.
        *request.uri_mut() = format!("{}{path}", self.base).parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &self.key {
            headers.insert(header::AUTHORIZATION, key.clone());
        }
        self.http.send(request).await.map_err(|error| match error {
            HttpClientError::Connect { error, .. } => LoadFailure::Connect(error.to_string()),
            // The server died with the request.
            HttpClientError::Exchange(error) if error.is_incomplete_message() => LoadFailure::Broken,
            HttpClientError::Exchange(error) => LoadFailure::Connect(error.to_string()),
            HttpClientError::Body { .. } => LoadFailure::Broken,
        })
    }
}

async fn refusal(response: Response<Incoming>) -> LoadFailure {
    let status = response.status().as_u16();
    let body = collect_body(response, MOST_BODY).await.unwrap_or_default();
    let refused = Box::new(LoadRefusals::read(&body));
    LoadFailure::Status { status, refused }
}
