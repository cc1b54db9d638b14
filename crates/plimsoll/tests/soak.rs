//! Tests of `plimsoll measure soak` with processes that leak, do not leak, or die.
//!
//! Here they are few and short. The whole promise is ten runs of each, with 20 000 requests where nothing
//! leaks: `PLIMSOLL_SOAK_RUNS=10 PLIMSOLL_SOAK_FLAT=20000 cargo test --release -p plimsoll soak:: --
//! --nocapture`

mod card;
mod engine;
mod sweep;

use std::process::{Command, Output, Stdio};

use engine::Engine;
use serde_json::Value;

fn soak(url: &str, arguments: &[&str]) -> (Output, Value) {
    soak_in(&[], url, arguments)
}

/// The same with these variables.
fn soak_in(variables: &[(&str, String)], url: &str, arguments: &[&str]) -> (Output, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["soak", url, "--json=-"])
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .expect("plimsoll starts");
    let json = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output, json)
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// One line a run, for whoever runs many with `--nocapture`.
fn reported(run: u64, json: &Value) -> String {
    let figure = &json["figures"][0];
    let [slope, low, high] =
        ["slope", "slope_low", "slope_high"].map(|name| figure[name].as_f64().unwrap_or(f64::NAN));
    let (requests, growth, confidence) = (&json["requests"], &figure["growth"], &figure["confidence"]);
    format!(
        "run {run}: {requests} requests, {growth}, {slope:.1} B per request ({low:.1} to {high:.1}), confidence {confidence}"
    )
}

#[test]
fn a_leak_of_one_kibibyte_a_request_is_found_within_two_thousand_requests() {
    for run in 0..number("PLIMSOLL_SOAK_RUNS", 1) {
        let engine = Engine::start("leak=1024 once=9000000 once_at=700 events=2");
        let (output, json) = soak(&engine.url(), &["--requests", "2000"]);
        println!("{}", reported(run, &json));
        assert_eq!((output.status.code(), &json["leak"]), (Some(1), &Value::Bool(true)), "{json:#}");
        let figure = &json["figures"][0];
        let within = |name: &str, low: f64, high: f64| {
            let value = figure[name].as_f64().unwrap();
            assert!((low..=high).contains(&value), "{name} is {value}");
        };
        within("slope", 900.0, 1300.0);
        within("confidence", 0.998, 1.0);
        assert_eq!((&json["requests"], &json["failed"]), (&2000.into(), &0.into()));
    }
}

#[test]
fn a_server_that_takes_memory_once_is_not_called_a_leak() {
    let requests = number("PLIMSOLL_SOAK_FLAT", 3000).to_string();
    for run in 0..number("PLIMSOLL_SOAK_RUNS", 1) {
        let engine = Engine::start("once=70000000 once_at=1500 events=2");
        let (output, json) = soak(&engine.url(), &["--requests", &requests, "--round", "50"]);
        println!("{}", reported(run, &json));
        assert_eq!((output.status.code(), &json["leak"]), (Some(0), &Value::Bool(false)), "{json:#}");
        let steps = json["figures"][0]["steps"].as_array().unwrap();
        assert!(
            steps
                .iter()
                .any(|step| step["to"].as_u64() > step["from"].as_u64().map(|from| from + 60_000_000)),
            "{steps:?}"
        );
    }
}

#[test]
fn the_page_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("soak.html").display().to_string();
    let engine = Engine::start("events=1");
    let arguments = ["--requests", "160", "--depths", "8", "--html", &page];
    let (_, json) = soak(&engine.url(), &arguments);
    assert_eq!((&json["requests"], &json["rounds"], &json["looks"]), (&160.into(), &40.into(), &40.into()));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("request 160"));
    for foreign in ["<script", "src=", "href=", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn failures_are_counted_by_kind_and_a_server_that_dies_ends_the_load() {
    let engine = Engine::start("fail=oom_at_depth:400 events=1");
    // Four bytes are a token there, so only the deep one kills it.
    let (output, json) = soak(
        &engine.url(),
        &["--requests", "4000", "--depths", "16,16,16,2000", "--clients", "1", "--give-up", "3s"],
    );
    assert_eq!((output.status.code(), &json["server_gone"]), (Some(1), &true.into()));
    assert!(json["failed"].as_u64().unwrap() > 0, "{json:#}");
    let notes = json["notes"].to_string();
    assert!(notes.contains("no longer answers"), "{notes}");
    let kinds = json["failures"].to_string();
    assert!(kinds.contains("no connection"), "{kinds}");
}

#[test]
fn a_server_that_is_not_there_is_reported_at_once() {
    let (output, _) = soak("http://127.0.0.1:1", &[]);
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(reported.contains("cannot list the models of http://127.0.0.1:1: no connection"), "{reported}");
    let (output, _) = soak("https://127.0.0.1:1", &[]);
    assert_eq!(output.status.code(), Some(2));
}

/// Two looks are no reason to call a server free of leaks.
#[test]
fn too_few_looks_are_no_verdict_in_the_text_on_the_page_and_in_the_status() {
    let engine = Engine::start("events=2");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("soak.html");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["soak", &engine.url(), "--requests", "40", "--html"])
        .arg(&page)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let page = std::fs::read_to_string(page).unwrap();
    for reported in [String::from_utf8_lossy(&output.stdout).into_owned(), page] {
        assert!(
            reported.contains("No verdict: too few readings of the")
                && !reported.contains("No leak was found"),
            "{reported}"
        );
    }
}
