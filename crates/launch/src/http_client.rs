//! Small HTTP/1.1 client that keeps one connection open.
//!
//! A request that fails on the kept connection is sent once more on a new one, where nothing of it was sent or it may be
//! repeated. TLS, redirects and proxies are not supported.

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

use super::address::{EngineAddress, EngineStream};

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
    #[error("the connection broke")]
    Exchange(#[from] hyper::Error),
    #[error("the answer is longer than {most} bytes or was cut off")]
    Body { most: usize },
}

/// Client of one server. Dropping it closes the connection.
#[derive(Debug)]
pub struct HttpClient {
    host: String,
    port: u16,
    engine: Option<EngineAddress>,
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
        Self { host: host.into(), port, engine: None, connection: None }
    }

    /// A client of an engine of ours, which may listen on a Unix socket.
    pub fn of_engine(address: EngineAddress) -> Self {
        let of_remote = |address: &str| {
            let (host, port) = address.rsplit_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        };
        let (host, port) = match &address {
            EngineAddress::Port(port) => ("127.0.0.1".to_owned(), *port),
            EngineAddress::Remote(address) => of_remote(address).unwrap_or_else(|| (address.clone(), 80)),
            EngineAddress::Socket { .. } => ("127.0.0.1".to_owned(), 80),
        };
        Self { engine: Some(address), ..Self::new(host, port) }
    }

    /// Sends `request`, whose URI is a path, and returns the head of the answer. The body must be read to its
    /// end before the next request; otherwise call [`HttpClient::disconnect`].
    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, HttpClientError> {
        let request = self.with_host(request);
        // A server may have carried out what it did not answer, so only methods that may be repeated are (RFC 9110
        // section 9.2.2).
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
        // An IPv6 address stands in brackets in `Host` (RFC 9110 section 7.2).
        let authority = match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        };
        if let Ok(authority) = HeaderValue::from_str(&authority) {
            request.headers_mut().insert(header::HOST, authority);
        }
        request
    }

    async fn connect(&self) -> Result<HttpConnection, HttpClientError> {
        let stream = self.stream().await.map_err(|error| HttpClientError::Connect {
            server: format!("{}:{}", self.host, self.port),
            error,
        })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // An error on the connection also ends the request that waits for it.
            let _ = connection.await;
        });
        Ok(HttpConnection { sender, driver })
    }

    async fn stream(&self) -> std::io::Result<EngineStream> {
        if let Some(engine) = &self.engine {
            return engine.connect(None).await;
        }
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let connected = timeout(CONNECT_WITHIN, connecting).await;
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_closed_connection_is_replaced_and_a_kept_one_is_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            // Two answers on the first connection, one on the second.
            for requests in [2, 1] {
                let (mut stream, _) = listener.accept().await.unwrap();
                for _ in 0..requests {
                    let mut request = vec![0; 1024];
                    let read = stream.read(&mut request).await.unwrap();
                    let head = String::from_utf8_lossy(&request[..read]).into_owned();
                    assert!(head.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{head}");
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                }
            }
        };
        let client = async {
            let mut client = HttpClient::new("127.0.0.1", port);
            for _ in 0..3 {
                let request = Request::get("/x").body(Full::default()).unwrap();
                let answer = client.send(request).await.unwrap();
                assert_eq!(collect_body(answer, 2).await.unwrap(), "ok");
            }
        };
        tokio::join!(server, client);
    }

    /// A server that answers once, takes another request without an answer, and counts what comes later.
    async fn sent_after_a_break(method: &str) -> (bool, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = HttpClient::new("127.0.0.1", listener.local_addr().unwrap().port());
        let server = async {
            let mut request = vec![0; 1024];
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            assert!(stream.read(&mut request).await.unwrap() > 0);
            drop(stream);
            let again = timeout(Duration::from_millis(300), listener.accept()).await;
            let Ok(Ok((mut stream, _))) = again else { return 0 };
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            1
        };
        let asks = async {
            let request = || Request::builder().method(method).uri("/x").body(Full::default()).unwrap();
            assert_eq!(collect_body(client.send(request()).await.unwrap(), 2).await.unwrap(), "ok");
            client.send(request()).await.is_ok()
        };
        let (again, is_answered) = tokio::join!(server, asks);
        (is_answered, again)
    }

    #[tokio::test]
    async fn what_a_server_may_have_carried_out_is_not_sent_again() {
        assert_eq!(sent_after_a_break("POST").await, (false, 0));
        for method in ["GET", "PUT", "DELETE"] {
            assert_eq!(sent_after_a_break(method).await, (true, 1), "{method}");
        }
    }

    #[tokio::test]
    async fn nobody_listening_is_an_error_that_names_the_server() {
        let port = crate::free_port(&[]).unwrap();
        let request = Request::get("/").body(Full::default()).unwrap();
        let error = HttpClient::new("127.0.0.1", port).send(request).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot connect to 127.0.0.1:{port}"));
    }
}
