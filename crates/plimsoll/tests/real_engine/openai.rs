//! Tests of OpenAI's own client with three models of which two fit.

use std::process::Command;

use serde_json::{Value, json};

use super::fleet::{Fleet, three};
use super::venv;
use crate::daemon::until;
use crate::http;

/// Lets real clients do `act`, and returns what they saw.
fn clients(fleet: &Fleet, act: &str) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_engine/clients.py");
    let base = format!("http://{}", fleet.daemon.address);
    venv::output(Command::new(venv::python()).args(["-I", script, &base, act]))
}

#[test]
fn chat_streaming_embeddings_and_the_list_of_models_work_with_openais_client() {
    let fleet = Fleet::with_room_for_two(&three());
    let seen = clients(&fleet, "surface");
    assert_eq!(seen["models"], json!(["alpha", "beta", "gamma"]));
    assert_eq!(seen["chat"]["model"], "alpha");
    assert!(!seen["chat"]["text"].as_str().unwrap().trim().is_empty(), "{seen}");
    // The same question at temperature 0: a stream brings the same words, under one id, to its end.
    assert_eq!(seen["stream"]["text"], seen["chat"]["text"]);
    assert_eq!(seen["stream"]["finish"], seen["chat"]["finish"]);
    assert_eq!(seen["stream"]["ids"], 1);
    assert_eq!(seen["embeddings"], json!({"count": 3, "size": 128, "model": "gamma"}));
}

#[test]
fn the_model_that_was_used_least_recently_makes_room() {
    let fleet = Fleet::with_room_for_two(&three());
    let seen = clients(&fleet, "order");
    let expected = json!([
        ["alpha", ["alpha"]],
        ["beta", ["alpha", "beta"]],
        ["gamma", ["beta", "gamma"]],
        ["beta", ["beta", "gamma"]],
        ["alpha", ["alpha", "beta"]],
        ["gamma", ["alpha", "gamma"]],
        ["alpha", ["alpha", "gamma"]],
        ["beta", ["alpha", "beta"]],
    ]);
    assert_eq!(seen["seen"], expected);
}

#[test]
fn two_hundred_mixed_requests_of_sixteen_clients_are_each_answered_once_and_leave_nothing() {
    let fleet = Fleet::with_room_for_two(&three());
    let seen = clients(&fleet, "crowd");
    assert_eq!(seen["errors"], json!([]));
    assert_eq!((&seen["answered"], &seen["distinct"]), (&json!(200), &json!(200)));
    let daemon = &fleet.daemon;
    assert!(daemon.claimed() > 0);
    assert_eq!(http::post(daemon.address, "/unload", &Value::Null).status, 200);
    until("the ledger is back to zero", || daemon.claimed() == 0);
    until("no engine is left", || daemon.engines().is_empty());
}
