//! Tests of exported traces: each request is a trace with its phases, and continues the client's trace.
//!
//! A slow or failing trace collector delays no request.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::webhook::receiver;
use crate::daemon::{Daemon, Setup};
use crate::http::{chat, chat_body, chat_stream, open_with, read};

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

fn traced(address: &str) -> Daemon {
    let settings = format!("[serve]\ntraces = \"{address}\"\n");
    Setup::new().config(&settings).model("alpha", "100MiB", "load_ms=50", "").start()
}

fn spans(request: &str) -> Vec<Value> {
    let document: Value =
        serde_json::from_str(request.split_once("\r\n\r\n").expect("as the test has made it").1)
            .expect("as the test has made it");
    let resource = &document["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "plimsoll", "{document}");
    resource["scopeSpans"][0]["spans"].as_array().expect("as the test has made it").clone()
}

fn nanoseconds(span: &Value, key: &str) -> u128 {
    span[key].as_str().expect("as the test has made it").parse().expect("as the test has made it")
}

#[test]
fn a_stream_that_waits_for_a_load_is_a_trace_of_four_phases() {
    let (address, received) = receiver(&[GOOD]);
    let daemon = traced(&address);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let ask = |flags: &str| {
        let header = format!("traceparent: 00-{trace}-00f067aa0ba902b7-{flags}\r\n");
        let body = chat_body("alpha", true);
        let stream = open_with(daemon.address, "POST", "/v1/chat/completions", &header, Some(&body));
        assert_eq!(read(&stream).status, 200);
    };
    ask("01");
    // A trace that its client does not record is not sent.
    ask("00");
    let request = received.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(request.to_lowercase().contains("content-type: application/json"), "{request}");
    let spans = spans(&request);
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["request alpha", "queue", "load", "prefill", "stream"]);
    assert!(spans.iter().all(|span| span["traceId"] == trace));
    assert_eq!(spans[0]["parentSpanId"], "00f067aa0ba902b7");
    // One phase begins where the one before it ended, from the arrival to the end.
    for pair in spans[1..].windows(2) {
        let (end, begin) =
            (nanoseconds(&pair[0], "endTimeUnixNano"), nanoseconds(&pair[1], "startTimeUnixNano"));
        assert_eq!(end, begin, "{request}");
    }
    assert_eq!(nanoseconds(&spans[0], "startTimeUnixNano"), nanoseconds(&spans[1], "startTimeUnixNano"));
    let load = nanoseconds(&spans[2], "endTimeUnixNano") - nanoseconds(&spans[2], "startTimeUnixNano");
    assert!(load >= 50_000_000, "{load} ns for a load of 50 ms");
    for secret in ["the ship", "authorization"] {
        assert!(!request.to_lowercase().contains(secret), "{request}");
    }
}

#[test]
fn a_collector_that_misbehaves_delays_no_request() {
    // It never answers, or with a head that does not end.
    let (address, received) = receiver(&["", "HTTP/1.1 200 OK\r\nX: "]);
    let daemon = traced(&address);
    assert_eq!(chat_stream(daemon.address, "alpha").status, 200);
    received.recv_timeout(Duration::from_secs(20)).unwrap();
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(chat(daemon.address, "alpha").status, 200);
        quickest = quickest.min(begun.elapsed());
    }
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
}

#[test]
fn malformed_traces_address_is_rejected_without_disclosure() {
    let setup = Setup::new().config("[serve]\ntraces = \"grpc://secret\"\n").model("alpha", "1MiB", "", "");
    let stated = setup.refused();
    assert!(stated.contains("`traces` is not an address") && !stated.contains("secret"), "{stated}");
}
