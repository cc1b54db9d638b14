//! HTTP client of a load test, with one persistent connection that is reopened if the server closes it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::{LoadAnswer, LoadFailure, StreamParser};
use super::refused::LoadRefusals;
use super::target::Target;

/// Size limit of a response that is not streamed.
const MOST_BODY: usize = 16 << 20;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A client with its own connection.
#[derive(Debug)]
pub struct Client {
    target: Target,
    key: Option<HeaderValue>,
    /// Time limit of a whole answer.
    patience: Duration,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub fn new(target: &Target, key: Option<&str>, patience: Duration) -> Self {
        // A key that is no header value cannot be sent; the server then answers 401, which names the cause.
        let key = key.and_then(|key| HeaderValue::from_str(&format!("Bearer {key}")).ok());
        Self {
            target: target.clone(),
            key,
            patience,
            connection: None,
        }
    }

    /// Sends a request and reads the stream to its end.
    pub async fn ask(&mut self, body: Bytes) -> Result<LoadAnswer, LoadFailure> {
        let patience = self.patience;
        let answer = timeout(patience, self.stream(body)).await;
        // HTTP/1.1 cannot skip the rest of a response, so a connection with an unread one cannot be reused.
        if !matches!(answer, Ok(Ok(_))) {
            self.connection = None;
        }
        answer.unwrap_or(Err(LoadFailure::Late))
    }

    async fn stream(&mut self, body: Bytes) -> Result<LoadAnswer, LoadFailure> {
        let start = Instant::now();
        let mut response = self.send(Method::POST, "/v1/chat/completions", body).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
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
            let bytes = collected(response).await?;
            serde_json::from_slice(&bytes).map_err(|_| LoadFailure::Malformed("no JSON"))
        };
        let read = timeout(patience, read).await.unwrap_or(Err(LoadFailure::Late));
        if read.is_err() {
            self.connection = None;
        }
        read
    }

    /// Sends on the kept connection, or on a new one if the server has closed it.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, LoadFailure> {
        let mut is_fresh = false;
        loop {
            let mut connection = match self.connection.take().filter(|kept| !kept.is_closed()) {
                Some(kept) => kept,
                None => {
                    is_fresh = true;
                    self.connect().await?
                }
            };
            let request = self.request(&method, path, &body);
            let ready = connection.ready().await;
            match async {
                ready?;
                connection.send_request(request).await
            }
            .await
            {
                Ok(response) => {
                    self.connection = Some(connection);
                    return Ok(response);
                }
                // Servers close idle connections. No byte of a response arrived, so the request can be sent
                // again.
                Err(_) if !is_fresh => {}
                // On a fresh connection the same error means that the server died with the request.
                Err(error) if error.is_incomplete_message() => return Err(LoadFailure::Broken),
                Err(error) => return Err(LoadFailure::Connect(error.to_string())),
            }
        }
    }

    fn request(&self, method: &Method, path: &str, body: &Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        // hyper sends the URI as it is; a path alone gives the origin form that HTTP/1.1 servers expect.
        let path = format!("{}{path}", self.target.base);
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(&self.target.authority()) {
            headers.insert(header::HOST, host);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &self.key {
            headers.insert(header::AUTHORIZATION, key.clone());
        }
        request
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, LoadFailure> {
        let failed = |error: &dyn std::fmt::Display| LoadFailure::Connect(error.to_string());
        // Connecting has its own limit: the patience for an answer is minutes, since it may include a model
        // load.
        let stream = timeout(
            CONNECT_WITHIN,
            TcpStream::connect((self.target.host.as_str(), self.target.port)),
        );
        let stream = stream
            .await
            .map_err(|_| LoadFailure::Late)?
            .map_err(|error| failed(&error))?;
        // Nagle's algorithm would delay a small request behind the server's delayed ACK by up to 40 ms.
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        tokio::task::spawn_local(async move {
            // The error also ends the pending request, and is reported there.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

async fn refusal(response: Response<Incoming>) -> LoadFailure {
    let status = response.status().as_u16();
    let body = collected(response).await.unwrap_or_default();
    let refused = Box::new(LoadRefusals::read(&body));
    LoadFailure::Status { status, refused }
}

async fn collected(response: Response<Incoming>) -> Result<Bytes, LoadFailure> {
    let limited = http_body_util::Limited::new(response.into_body(), MOST_BODY);
    let body = limited.collect().await.map_err(|_| LoadFailure::Broken)?;
    Ok(body.to_bytes())
}
