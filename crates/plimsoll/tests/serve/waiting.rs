//! Tests of waiting models and of the choice of models to stop; no request waits for ever.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::daemon::{Setup, until};
use crate::http;
use crate::http::{chat, chat_body, get, post};

#[test]
fn the_least_recently_used_model_leaves() {
    let daemon = Setup::new()
        .model("a", "400MiB", "", "")
        .model("b", "400MiB", "", "")
        .model("c", "400MiB", "", "")
        .start();
    for (model, up) in [
        ("a", vec!["a"]),
        ("b", vec!["a", "b"]),
        ("c", vec!["b", "c"]),
        ("b", vec!["b", "c"]),
        ("a", vec!["a", "b"]),
        ("c", vec!["a", "c"]),
    ] {
        assert_eq!(chat(daemon.address, model).status, 200);
        assert_eq!(daemon.running(), up, "after {model}");
    }
}

#[test]
fn three_overlapping_clients_on_one_model_never_starve_another() {
    let daemon = Setup::new()
        .config("[serve]\npatience = \"500ms\"\n")
        .model("warm", "700MiB", "delay_ms=100", "")
        .model("cold", "700MiB", "", "")
        .start();
    let address = daemon.address;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut served = 0;
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(chat(address, "warm").status, 200);
                        served += 1;
                    }
                    served
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        let answer = chat(address, "cold");
        let waited = start.elapsed();
        stop.store(true, Ordering::Relaxed);
        let served: Vec<i32> =
            clients.into_iter().map(|client| client.join().expect("no client fails")).collect();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(waited < Duration::from_secs(10), "cold waited {waited:?}");
        assert!(served.iter().all(|count| *count >= 2), "warm was served too: {served:?}");
    });
}

#[test]
fn loads_of_one_model_coalesce() {
    let daemon = Setup::new().model("a", "400MiB", "load_ms=300", "").start();
    let address = daemon.address;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || assert_eq!(chat(address, "a").status, 200));
        }
    });
    assert_eq!(daemon.engines().len(), 1);
}

#[test]
fn a_request_that_waits_too_long_is_refused_with_who_holds_the_card() {
    let daemon = Setup::new()
        .config("[serve]\nwait = \"1s\"\n")
        .model("busy", "700MiB", "delay_ms=4000", "")
        .model("next", "700MiB", "", "")
        .start();
    let busy = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("busy", false)));
    until("busy is up", || daemon.running() == ["busy"]);
    let answer = chat(daemon.address, "next");
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "deadline", "{error}");
    assert!(error.to_string().contains("busy"), "the holder is not named: {error}");
    assert_eq!(http::read(&busy).status, 200, "the request in flight finishes");
}

#[test]
fn a_client_that_leaves_the_queue_gives_its_place_up() {
    let daemon =
        Setup::new().model("busy", "700MiB", "delay_ms=1500", "").model("next", "700MiB", "", "").start();
    let busy = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("busy", false)));
    until("busy is up", || daemon.running() == ["busy"]);
    drop(http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("next", false))));
    assert_eq!(http::read(&busy).status, 200);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.running(), ["busy"], "nobody wanted next any more");
}

#[test]
fn an_order_to_load_outlives_the_client_that_waited_first() {
    let daemon =
        Setup::new().model("busy", "700MiB", "delay_ms=2500", "").model("next", "700MiB", "", "").start();
    let busy = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("busy", false)));
    until("busy is up", || daemon.running() == ["busy"]);
    let client = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("next", false)));
    daemon.told("wait next: the model still waits for memory: busy holds 700 MiB");
    let order = serde_json::json!({"model": "next"});
    assert_eq!(post(daemon.address, "/models/load", &order).status, 400, "it waits already");
    drop(client);
    assert_eq!(http::read(&busy).status, 200);
    until("the ordered model is up", || daemon.running() == ["next"]);
}

#[test]
fn an_idle_model_leaves_after_its_ttl_and_comes_back() {
    let daemon = Setup::new().model("a", "400MiB", "", "ttl = \"1s\"").start();
    assert_eq!(chat(daemon.address, "a").status, 200);
    until("it is unloaded", || daemon.running().is_empty());
    until("its claim is given back", || daemon.claimed() == 0);
    assert_eq!(chat(daemon.address, "a").status, 200);
}

#[test]
fn models_load_and_unload_by_llama_servers_own_endpoints() {
    let daemon = Setup::new().model("a", "400MiB", "", "aliases = [\"gpt\"]").start();
    let model = serde_json::json!({"model": "a"});
    assert_eq!(post(daemon.address, "/models/load", &model).json(), serde_json::json!({"success": true}));
    until("it is loaded", || daemon.running() == ["a"]);
    let listed = get(daemon.address, "/models").json();
    assert_eq!(listed["data"][0]["id"], "a");
    assert_eq!(listed["data"][0]["status"]["value"], "loaded");
    assert_eq!(chat(daemon.address, "gpt").status, 200, "an alias answers");
    assert_eq!(post(daemon.address, "/models/unload", &model).json(), serde_json::json!({"success": true}));
    until("it is unloaded", || daemon.running().is_empty());
}

#[test]
fn a_reload_touches_only_what_changed() {
    let setup =
        || Setup::new().model("stays", "200MiB", "", "").model("changes", "200MiB", "answer_bytes=32", "");
    let daemon = setup().start();
    let pid = |model: &str| chat(daemon.address, model).json()["fake"]["pid"].as_u64();
    let before = (pid("stays"), pid("changes"));
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), config.replace("answer_bytes=32", "answer_bytes=33")).unwrap();
    daemon.signal("HUP");
    until("the reload is done", || pid("changes") != before.1);
    assert_eq!(pid("stays"), before.0);

    std::fs::write(daemon.config_file(), "[models.broken").unwrap();
    daemon.signal("HUP");
    until("the broken file is reported", || daemon.talk().contains("plimsoll.toml:1"));
    assert_eq!(pid("stays"), before.0, "a broken file changes nothing");
}

#[test]
fn two_agents_with_a_model_each_take_turns_instead_of_a_load_for_each_call() {
    let loads = |hold: &str| {
        let model = |name, daemon: Setup| {
            daemon.model(name, "700MiB", "load_ms=100 delay_ms=20", &format!("hold = \"{hold}\""))
        };
        let daemon = model("b", model("a", Setup::new())).start();
        let address = daemon.address;
        // The fake engine tells its process in every answer.
        let engines: BTreeSet<String> = std::thread::scope(|scope| {
            let agent = |name: &'static str| {
                scope.spawn(move || {
                    let calls = (0..10).map(|_| {
                        let answer = chat(address, name);
                        std::thread::sleep(Duration::from_millis(40));
                        answer.header("x-fake-engine").expect("the engine answers").to_owned()
                    });
                    calls.collect::<BTreeSet<String>>()
                })
            };
            let agents = [agent("a"), agent("b")];
            agents.into_iter().flat_map(|agent| agent.join().expect("no call fails")).collect()
        });
        engines.len()
    };
    let (without, with) = (loads("0s"), loads("10s"));
    assert!(without > 10, "{without} loads");
    assert!(with <= 8, "{with} loads");
}
