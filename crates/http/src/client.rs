//! Small HTTP/1.1 client that keeps one connection open.
//!
//! A request that fails on the kept connection is sent once more on a new one, where nothing of it was sent
//! or it may be repeated. TLS, redirects and proxies are not supported.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connector::{BoxTransport, Connector};

/// A host that drops packets would otherwise hold a connection attempt for two minutes (tcp_syn_retries).
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Error of a request that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    #[error("cannot connect to {server}")]
    Connect {
        server: String,
        #[source]
        error: std::io::Error,
    },
    #[error("the connection broke before the answer was complete")]
    Exchange(#[from] hyper::Error),
    #[error("the answer is longer than {most} bytes or was cut off")]
    Body { most: usize },
}

/// Client of one server. Dropping it closes the connection.
#[derive(Debug)]
pub struct HttpClient {
    /// `HOST:PORT`, an IPv6 address in brackets.
    authority: String,
    connector: Option<Box<dyn Connector>>,
    connect_within: Duration,
    connection: Option<HttpConnection>,
}

#[derive(Debug)]
struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl HttpClient {
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        let host = host.into();
        // An IPv6 address stands in brackets in `Host` (RFC 9110 section 7.2).
        let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
        Self::at(if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }

    /// A client of the server at `HOST:PORT`.
    pub fn at(authority: impl Into<String>) -> Self {
        let connect_within = CONNECT_WITHIN;
        Self { authority: authority.into(), connector: None, connect_within, connection: None }
    }

    /// Opens connections by `connector` instead of TCP to the server's address.
    #[must_use]
    pub fn over(self, connector: impl Connector + 'static) -> Self {
        Self { connector: Some(Box::new(connector)), ..self }
    }

    /// Limits the time of a TCP connection attempt.
    #[must_use]
    pub fn connect_within(self, limit: Duration) -> Self {
        Self { connect_within: limit, ..self }
    }

    /// Sends `request`, whose URI is a path, and returns the head of the answer. The body must be read to its
    /// end before the next request; otherwise call [`HttpClient::disconnect`].
    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, HttpClientError> {
        let request = self.with_host(request);
        // A server may have carried out what it did not answer, so only methods that may be repeated are (RFC
        // 9110 section 9.2.2).
        let repeats = request.method().is_idempotent();
        if let Some(mut kept) = self.connection.take()
            && kept.sender.ready().await.is_ok()
        {
            match kept.sender.try_send_request(request.clone()).await {
                Ok(answer) => {
                    self.connection = Some(kept);
                    return Ok(answer);
                }
                // The request is given back where nothing of it was sent.
                Err(error) if repeats || error.message().is_some() => {}
                Err(error) => return Err(error.into_error().into()),
            }
        }
        let mut fresh = self.connect().await?;
        let answer = fresh.sender.send_request(request).await?;
        self.connection = Some(fresh);
        Ok(answer)
    }

    /// Forgets the kept connection.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    fn with_host(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        if let Ok(authority) = HeaderValue::from_str(&self.authority) {
            request.headers_mut().insert(header::HOST, authority);
        }
        request
    }

    async fn connect(&self) -> Result<HttpConnection, HttpClientError> {
        let stream = self.stream().await;
        let stream =
            stream.map_err(|error| HttpClientError::Connect { server: self.authority.clone(), error })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // An error on the connection also ends the request that waits for it.
            let _ = connection.await;
        });
        Ok(HttpConnection { sender, driver })
    }

    async fn stream(&self) -> std::io::Result<BoxTransport> {
        if let Some(connector) = &self.connector {
            return connector.connect().await;
        }
        let connected = timeout(self.connect_within, TcpStream::connect(&self.authority)).await;
        let stream = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
        // Nagle's algorithm would hold a short request back until the last answer is acknowledged.
        let _ = stream.set_nodelay(true);
        Ok(Box::new(stream))
    }
}

/// Collects the body of `answer`, of at most `most` bytes.
pub async fn collect_body(answer: Response<Incoming>, most: usize) -> Result<Bytes, HttpClientError> {
    // `Limited` reports its bound and a broken connection alike.
    let body = Limited::new(answer.into_body(), most).collect().await;
    Ok(body.map_err(|_| HttpClientError::Body { most })?.to_bytes())
}
