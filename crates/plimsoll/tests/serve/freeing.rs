//! Tests of idle engines that free memory on request, before any engine is stopped for another model.

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{chat, get, post};

/// A stand-in of this kind that takes 500 MiB once it is filled.
fn stand_in(kind: &str, flags: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/freeing.py");
    format!(
        "[models.image]\ncmd = 'python3 {script} ${{PORT}} {kind} 500 {flags}'\nkind = '{kind}'\nmemory = '600MiB'\n"
    )
}

fn ask(daemon: &Daemon, path: &str) -> Value {
    let answer = post(daemon.address, &format!("/upstream/image{path}"), &json!({ "model": "image" }));
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

fn stated(daemon: &Daemon) -> Vec<String> {
    let stated = get(daemon.address, "/upstream/image/said").json();
    serde_json::from_value(stated).expect("a list of paths")
}

fn measured(daemon: &Daemon) -> u64 {
    let status = daemon.status();
    let models = status["models"].as_array().expect("models");
    let image = models.iter().find(|model| model["name"] == "image").expect("the model");
    image["measured"][0]["bytes"].as_u64().unwrap_or_default()
}

fn filled(kind: &str, flags: &str, more: &str) -> Daemon {
    let setup = Setup::new().config(more).config(&stand_in(kind, flags)).model("chat", "612MiB", "", "");
    let daemon = setup.start();
    ask(&daemon, "/fill");
    until("it was measured", || measured(&daemon) > 400 << 20);
    daemon
}

#[test]
fn comfyui_frees_its_models_for_another_one_and_stays() {
    let daemon = filled("comfyui", "", "");
    assert_eq!(chat(daemon.address, "chat").status, 200);
    assert_eq!(daemon.running(), ["chat", "image"], "{}", daemon.talk());
    daemon.reported("image frees its memory while it is idle");
    // Its next request has its memory back, for which the other leaves.
    ask(&daemon, "/fill");
    assert_eq!(daemon.running(), ["image"], "{}", daemon.talk());
    assert!(stated(&daemon).starts_with(&["/fill".to_owned(), "/free".to_owned()]), "{:?}", stated(&daemon));
    assert_eq!(daemon.talk().matches("INFO load image").count(), 1, "it was never stopped");
}

#[test]
fn comfyui_that_computes_is_not_asked_to_free() {
    let daemon = filled("comfyui", "", "");
    ask(&daemon, "/job");
    let jobs = stated(&daemon);
    assert_eq!(chat(daemon.address, "chat").status, 200);
    assert!(!jobs.contains(&"/free".to_owned()) && !daemon.talk().contains("frees its memory"), "{jobs:?}");
}

#[test]
fn a_yield_takes_what_an_idle_engine_frees_and_stops_nothing() {
    let daemon = filled("comfyui", "", "");
    let answer = post(daemon.address, "/api/yield", &json!({ "size": "900MiB", "for": 60 }));
    assert_eq!(answer.status, 200, "{}", answer.text());
    until("the room is free", || get(daemon.address, "/api/yield").json()["yields"][0]["lacks"] == 0);
    assert_eq!(daemon.running(), ["image"], "{}", daemon.talk());
}

#[test]
fn vllm_sleeps_for_another_model_and_is_woken_for_its_next_request() {
    let daemon = filled("vllm", "--enable-sleep-mode", "");
    assert_eq!(chat(daemon.address, "chat").status, 200);
    assert_eq!(daemon.running(), ["chat", "image"], "{}", daemon.talk());
    assert_eq!(ask(&daemon, "/v1/completions")["asleep"], false);
    let stated = stated(&daemon);
    assert!(
        stated.starts_with(&["/fill", "/sleep", "/wake_up", "/v1/completions"].map(str::to_owned)),
        "{stated:?}"
    );
    assert_eq!(daemon.running(), ["image"]);
}

#[test]
fn an_engine_without_the_flag_is_stopped_and_so_is_any_where_nothing_is_asked() {
    for (flags, more) in [("", ""), ("--enable-sleep-mode", "[serve]\nask = '0'\n")] {
        let daemon = filled("vllm", flags, more);
        assert_eq!(chat(daemon.address, "chat").status, 200);
        assert_eq!(daemon.running(), ["chat"], "{flags} {more}: {}", daemon.talk());
    }
}
