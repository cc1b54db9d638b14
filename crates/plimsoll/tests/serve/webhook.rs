//! Tests of the webhook: it gets every failure and no secret, and a misbehaving receiver affects no request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::Setup;
use crate::http::chat;

/// A receiver that answers its connections one after the other with these; the last answer is repeated.
pub(crate) fn receiver(answers: &'static [&'static str]) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("as the test has made it");
    let address =
        format!("http://{}/hooks/secret-path", listener.local_addr().expect("as the test has made it"));
    let (sender, received) = channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            // In this thread: the sender may come again before another one has handed the request over.
            take(stream, answers[number.min(answers.len() - 1)]).map(|request| sender.send(request));
        }
    });
    (address, received)
}

/// Reads a whole request, answers, and leaves the connection open for a while.
fn take(mut stream: TcpStream, answer: &str) -> Option<String> {
    let mut request = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let count = stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&bytes[..count]);
        let text = String::from_utf8_lossy(&request).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split("content-length: ").nth(1)?.lines().next()?.trim().parse::<usize>().ok()?;
        if body.len() >= length {
            break;
        }
    }
    let _ = stream.write_all(answer.as_bytes());
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(20));
        drop(stream);
    });
    Some(String::from_utf8_lossy(&request).into_owned())
}

fn setup(address: &str) -> Setup {
    let settings = format!("[serve]\nwebhook = \"{address}\"\napi-keys = [\"hush\"]\n");
    Setup::new().config(&settings).model("weak", "100MiB", "fail=oom_at_load", "")
}

fn fails(address: std::net::SocketAddr) -> Duration {
    let begun = Instant::now();
    let body = crate::http::chat_body("weak", false);
    let head = "authorization: Bearer hush\r\n";
    let stream = crate::http::open_with(address, "POST", "/v1/chat/completions", head, Some(&body));
    assert_eq!(crate::http::read(&stream).status, 503);
    begun.elapsed()
}

#[test]
fn a_failure_arrives_after_refusals_and_without_secrets() {
    const GOOD: &str = "HTTP/1.1 204 No Content\r\n\r\n";
    const BAD: &str = "HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let (address, received) = receiver(&[BAD, GOOD]);
    let daemon = setup(&address).start();
    fails(daemon.address);
    let first = received.recv_timeout(Duration::from_secs(20)).unwrap();
    let second = received.recv_timeout(Duration::from_secs(20)).unwrap();
    let body = |request: &str| request.split_once("\r\n\r\n").unwrap().1.to_owned();
    assert_eq!(body(&first), body(&second), "the same failure again");
    let document: Value = serde_json::from_str(&body(&second)).unwrap();
    let mark = &document["marks"][0];
    assert_eq!(
        (&document["schema"], &mark["name"]),
        (&"plimsoll.events/1".into(), &"weak".into()),
        "{document}"
    );
    assert!(mark["failure"]["reason"]["text"].as_str().unwrap().contains("weak"), "{document}");
    assert!(mark["time"].as_u64().is_some_and(|time| time > 1_700_000_000), "{document}");
    for secret in ["hush", "authorization", "engine_said"] {
        assert!(!second.to_lowercase().contains(secret), "{second}");
    }
    assert!(!daemon.talk().contains("secret-path"), "{}", daemon.talk());
}

#[test]
fn a_receiver_that_misbehaves_delays_no_request() {
    // It never answers, or with a head that does not end.
    let (address, received) = receiver(&["", "HTTP/1.1 200 OK\r\nX: "]);
    let daemon = setup(&address).start();
    fails(daemon.address);
    received.recv_timeout(Duration::from_secs(20)).unwrap();
    let mut daemon_is_quick = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(chat(daemon.address, "weak").status, 401);
        daemon_is_quick = daemon_is_quick.min(begun.elapsed());
    }
    assert!(daemon_is_quick < Duration::from_secs(1), "{daemon_is_quick:?}");
}

#[test]
fn malformed_webhook_address_is_rejected_without_disclosure() {
    for address in ["ftp://x/secret-path", "http://name:secret@host/", "not an address"] {
        let stated = setup(address).refused();
        assert!(stated.contains("`webhook` is not an address") && !stated.contains("secret"), "{stated}");
    }
}
