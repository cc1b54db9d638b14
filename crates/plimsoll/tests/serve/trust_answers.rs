//! Tests that a request which its engine drops, or cannot read, fails for its own client only.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::daemon::Setup;
use crate::http::{chat, chat_body, open, post, read};

#[test]
fn a_dropped_request_is_answered_502_and_the_engine_goes_on_serving_others() {
    let daemon =
        Setup::new().model("a", "256MiB", "fail=drop_at_depth:1000 events=40 event_ms=100", "").start();
    let process = chat(daemon.address, "a").json()["fake"]["pid"].clone();
    let stream = open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("a", true)));
    let mut deep = chat_body("a", false);
    deep["messages"] = json!([{"role": "user", "content": "deep ".repeat(2000)}]);
    for _ in 0..2 {
        let refused = post(daemon.address, "/v1/chat/completions", &deep);
        assert_eq!(refused.status, 502, "{}", refused.text());
        assert_eq!(refused.json()["error"]["code"], "no_answer");
        // A kill would follow two seconds after the first dropped request.
        thread::sleep(Duration::from_millis(1200));
        assert_eq!(chat(daemon.address, "a").json()["fake"]["pid"], process);
    }
    let whole = read(&stream);
    assert!(whole.whole && whole.text().contains("[DONE]"), "{}", whole.text());
}

/// Without this check it would load the model, and evict another, for an engine that can only refuse it.
#[test]
fn a_damaged_body_loads_nothing() {
    let daemon = Setup::new().model("a", "256MiB", "", "").start();
    let body = r#"{"model":"a", garbage"#;
    let mut client = TcpStream::connect(daemon.address).unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close";
    write!(client, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(
        answer.contains("the request body is not JSON: key must be a string at line 1 column 15"),
        "{answer}"
    );
    daemon.reported("request a: 400");
    assert!(daemon.engines().is_empty());
}
