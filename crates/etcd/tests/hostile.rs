//! Tests of the client with servers that send garbage: it returns an error within its deadlines.

use std::time::{Duration, Instant};

use plimsoll_etcd::{Etcd, StoreAccess, StoreAddress};
use plimsoll_fleet::{KeySpace, Transaction, TransactionOutcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A member that sends these bytes to everyone, and then nothing, or ends.
async fn member(bytes: Vec<u8>, stays: bool) -> Etcd {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: StoreAddress = format!("etcd://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let bytes = bytes.clone();
            tokio::spawn(async move {
                let _ = socket.read(&mut [0; 4096]).await;
                let _ = socket.write_all(&bytes).await;
                if stays {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            });
        }
    });
    Etcd::new(&address, KeySpace::of("test").unwrap(), &StoreAccess::default()).unwrap()
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn malformed_answers_of_an_etcd_member_are_errors() {
    let deep = "[".repeat(1 << 20);
    let cases = [
        Vec::new(),
        b"\xff\xff\xff".to_vec(),
        answer(b""),
        answer(b"null"),
        answer(deep.as_bytes()),
        answer(br#"{"header":{"revision":"-1"}}"#),
        answer(br#"{"kvs":[{"key":"not base64!"}]}"#),
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{".to_vec(),
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nwoe\xff!".to_vec(),
    ];
    for bytes in cases {
        let store = member(bytes.clone(), false).await;
        let text = String::from_utf8_lossy(&bytes).chars().take(60).collect::<String>();
        assert!(store.read().await.is_err(), "{text}");
        assert_eq!(store.transact(&Transaction::default(), 0).await, TransactionOutcome::Unknown, "{text}");
        let watch = store.watch(1).await;
        let ended = match watch {
            Ok(mut watch) => watch.next().await.is_err(),
            Err(_) => true,
        };
        assert!(ended, "{text}");
    }
}

#[tokio::test]
async fn a_member_that_stays_silent_costs_two_seconds() {
    let begun = Instant::now();
    assert!(member(Vec::new(), true).await.header().await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn an_endless_line_of_a_watch_is_given_up() {
    let mut bytes = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    bytes.resize(9 << 20, b'x');
    let mut watch = member(bytes, true).await.watch(1).await.unwrap();
    let end = watch.next().await.unwrap_err();
    assert!(end.to_string().contains("too long"), "{end}");
}
