//! Tests of the HTTP client: connections that are kept, replaced or refused.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use plimsoll_http::{HttpClient, collect_body};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

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
async fn non_idempotent_requests_are_not_resent() {
    assert_eq!(sent_after_a_break("POST").await, (false, 0));
    for method in ["GET", "PUT", "DELETE"] {
        assert_eq!(sent_after_a_break(method).await, (true, 1), "{method}");
    }
}

#[tokio::test]
async fn nobody_listening_is_an_error_that_names_the_server() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let request = Request::get("/").body(Full::default()).unwrap();
    let error = HttpClient::new("127.0.0.1", port).send(request).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot connect to 127.0.0.1:{port}"));
}

#[tokio::test]
async fn an_ipv6_address_stands_in_brackets_once() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for host in ["::1", "[::1]"] {
        let request = Request::get("/").body(Full::default()).unwrap();
        let error = HttpClient::new(host, port).send(request).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot connect to [::1]:{port}"));
    }
}
