//! Tests that a failing engine is replaced only after test requests of Plimsoll's own have failed, never
//! because of clients' requests.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{self, Answer, chat, chat_body};

/// Deeper than the engines of these tests answer.
fn deep(name: &str) -> Value {
    json!({"model": name, "messages": [{"role": "user", "content": "x".repeat(8000)}]})
}

fn process(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["fake"]["pid"].as_u64().expect("a pid")
}

/// The time until another process answers, after an engine with this fault has answered twice.
fn replaced_after(script: &str) -> Duration {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = format!("{script} fail_once={}", folder.path().join("once").display());
    let daemon =
        Setup::new().model("good", "256MiB", "", "pin = true").model("bad", "256MiB", &script, "").start();
    let neighbour = process(&chat(daemon.address, "good"));
    let before = process(&chat(daemon.address, "bad"));
    assert_eq!(process(&chat(daemon.address, "bad")), before);
    let start = Instant::now();
    loop {
        let answer = chat(daemon.address, "bad");
        if answer.status == 200 {
            assert_ne!(process(&answer), before, "each request to it fails");
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{} {}", answer.status, answer.text());
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(process(&chat(daemon.address, "good")), neighbour);
    daemon.reported("failed Plimsoll's test requests, did not end by itself, and was killed");
    start.elapsed()
}

#[test]
fn an_engine_that_answers_each_request_with_an_error_is_replaced_though_its_health_is_well() {
    assert!(replaced_after("fail=poisoned:2") < Duration::from_secs(30));
}

#[test]
fn an_engine_that_closes_the_connection_of_each_request_is_replaced_though_its_health_is_well() {
    assert!(replaced_after("fail=poisoned:2:drops") < Duration::from_secs(30));
}

/// Clients that send what the engine fails, while another client is sent an answer for ten seconds.
fn fail_alongside_a_stream(script: &str) {
    let script = format!("{script} events=100 event_ms=100");
    let daemon = Setup::new().model("bad", "256MiB", &script, "").start();
    let first = daemon.engines();
    let stream = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("bad", true)));
    until("the stream begins", || in_flight(&daemon) == 1);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let end = Instant::now() + Duration::from_secs(8);
                while Instant::now() < end {
                    let answer = http::post(daemon.address, "/v1/chat/completions", &deep("bad"));
                    assert_ne!(answer.status, 200);
                    thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
    let answer = http::read(&stream);
    assert!(answer.whole, "{}", answer.text());
    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    assert!(first.is_empty() && daemon.engines().len() == 1);
    assert_eq!(daemon.status()["models"][0]["run"], 1, "it is the run of before");
}

#[test]
fn clients_whose_requests_are_dropped_cut_no_stream_of_another() {
    fail_alongside_a_stream("fail=drop_at_depth:1000");
}

#[test]
fn clients_whose_requests_are_answered_with_errors_cut_no_stream_of_another() {
    fail_alongside_a_stream("fail=error_at_depth:1000");
}

#[test]
fn a_busy_engine_whose_probe_has_to_wait_for_its_only_slot_is_not_replaced() {
    let script = "fail=error_at_depth:1000 slots=1 delay_ms=10000";
    let daemon = Setup::new().model("bad", "256MiB", script, "").start();
    thread::scope(|scope| {
        let first = scope.spawn(|| chat(daemon.address, "bad"));
        until("it is loaded and busy", || in_flight(&daemon) == 1);
        let failed = http::post(daemon.address, "/v1/chat/completions", &deep("bad"));
        assert_eq!(failed.status, 500);
        assert_eq!(first.join().expect("a client").status, 200);
    });
    assert_eq!(daemon.status()["models"][0]["run"], 1, "it is the run of before");
}

fn in_flight(daemon: &Daemon) -> u64 {
    let status = daemon.status();
    status["models"][0]["in_flight"].as_u64().unwrap_or_default()
}
