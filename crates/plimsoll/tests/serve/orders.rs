//! Tests of how operator commands and waits are reported: the log, displays and responses show each one
//! exactly once.

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{self, Answer, chat, chat_body, get, post};

const CHAT: &str = "/v1/chat/completions";

fn asks(daemon: &Daemon, model: &str) -> TcpStream {
    http::open(daemon.address, "POST", CHAT, Some(&chat_body(model, false)))
}

fn order(daemon: &Daemon, what: &str, model: &str) -> Answer {
    let path = if what == "load" { "/models/load".to_owned() } else { format!("/api/models/{what}") };
    post(daemon.address, &path, &json!({"model": model}))
}

fn end_yield(daemon: &Daemon) -> Answer {
    http::read(&http::open(daemon.address, "DELETE", "/api/yield", None))
}

fn keep_free(daemon: &Daemon, size: &str, seconds: u64) {
    let order = json!({"size": size, "for": seconds});
    assert_eq!(post(daemon.address, "/api/yield", &order).status, 200);
}

/// The wait for the model, as the status document has it.
fn wait(daemon: &Daemon, model: &str) -> Value {
    let status = daemon.status();
    let models = status["models"].as_array().cloned().unwrap_or_default();
    let model = models.into_iter().find(|view| view["name"] == model);
    model.map_or(Value::Null, |view| view["outlook"]["wait"].clone())
}

fn refused(daemon: &Daemon) -> Vec<Value> {
    let status = daemon.status();
    let marks = status["marks"].as_array().cloned().unwrap_or_default();
    marks.into_iter().filter(|mark| mark["kind"] == "refused").collect()
}

#[test]
fn a_load_that_a_request_waits_for_already_stands_without_that_request() {
    let daemon =
        Setup::new().model("slow", "700MiB", "delay_ms=2500", "").model("next", "700MiB", "", "").start();
    let busy = asks(&daemon, "slow");
    until("slow is up", || daemon.running() == ["slow"]);
    let client = asks(&daemon, "next");
    until("the request waits", || wait(&daemon, "next")["until"].is_f64());
    assert_eq!(order(&daemon, "load", "next").json(), json!({"success": true}));
    daemon.reported("audit load next");
    assert_eq!(wait(&daemon, "next")["until"], Value::Null);
    let second = order(&daemon, "load", "next");
    assert_eq!((second.status, &second.json()["error"]["code"]), (400, &json!("model_running")));
    drop(client);
    until("the client is gone", || daemon.talk().contains("abandoned by the client"));
    assert_eq!(wait(&daemon, "next")["cause"], "room", "the order stands");
    assert_eq!(http::read(&busy).status, 200);
    until("it is loaded", || daemon.running() == ["next"]);
    assert_eq!(daemon.talk().matches("audit load next").count(), 1);
    assert_eq!(refused(&daemon), Vec::<Value>::new());
}

#[test]
fn a_wait_for_the_end_of_a_yield_says_so_everywhere() {
    let daemon = Setup::new().model("small", "85MiB", "", "").model("large", "600MiB", "", "").start();
    assert_eq!(chat(daemon.address, "small").status, 200);
    keep_free(&daemon, "512MiB", 3);
    let client = asks(&daemon, "large");
    until("it waits for room", || wait(&daemon, "large")["cause"] == "room");
    let reason = &wait(&daemon, "large")["reason"];
    let yields = "`plimsoll yield` keeps free 512 MiB of host";
    assert_eq!(reason["because"].as_array().map(Vec::len), Some(1), "{reason}");
    assert_eq!(reason["because"][0]["text"], yields);
    let line = format!("the model still waits for memory that is kept free for other programs: {yields}");
    daemon.reported(&format!("wait large: {line}"));
    let requests = daemon.status()["requests"].clone();
    assert_eq!(requests[0]["waits_for"], json!(line), "{requests}");
    assert_eq!(http::read(&client).status, 200);
    let mut running = daemon.running();
    running.sort();
    assert_eq!(running, ["large", "small"]);
}

#[test]
fn refusals_with_other_figures_are_other_refusals() {
    let daemon = Setup::new().model("alpha", "600MiB", "", "").start();
    for size in ["500MiB", "700MiB", "700MiB"] {
        keep_free(&daemon, size, 3600);
        assert_eq!(chat(daemon.address, "alpha").status, 503);
    }
    let reported: Vec<(String, Value)> = refused(&daemon)
        .into_iter()
        .map(|mark| (mark["failure"]["reason"].to_string(), mark["failure"]["times"].clone()))
        .collect();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[0].0.contains("keeps free 500 MiB") && reported[0].1 == 1, "{reported:?}");
    assert!(reported[1].0.contains("keeps free 700 MiB") && reported[1].1 == 2, "{reported:?}");
    // The line of the last request comes after those of all refusals.
    until("three requests are told", || daemon.talk().matches("request alpha: 503").count() == 3);
    let lines = daemon.talk().matches("request refused: alpha does not fit").count();
    assert_eq!(lines, 2, "{}", daemon.talk());
    // A client that leaves is no refusal.
    keep_free(&daemon, "700MiB", 30);
    let client = asks(&daemon, "alpha");
    until("it waits", || wait(&daemon, "alpha")["cause"] == "room");
    drop(client);
    until("the client is gone", || daemon.talk().contains("abandoned by the client"));
    assert_eq!(refused(&daemon).len(), 2);
}

#[test]
fn a_yield_and_a_pin_that_are_not_there_do_not_end() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    assert_eq!(end_yield(&daemon).json(), json!({"yields": []}));
    assert_eq!(order(&daemon, "unpin", "alpha").status, 200);
    keep_free(&daemon, "500MiB", 3600);
    assert_eq!(order(&daemon, "pin", "alpha").status, 200);
    for _ in 0..2 {
        assert_eq!(end_yield(&daemon).json(), json!({"yields": []}));
        assert_eq!(order(&daemon, "unpin", "alpha").status, 200);
    }
    assert_eq!(get(daemon.address, "/api/yield").status, 200);
    daemon.reported("audit unpin alpha");
    let talk = daemon.talk();
    for line in ["the yield on host ends", "audit end yield", "INFO unpin alpha", "audit unpin alpha"] {
        assert_eq!(talk.matches(line).count(), 1, "{line} in {talk}");
    }
}
