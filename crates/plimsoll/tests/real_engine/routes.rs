//! Tests of each llama-server route through `serve`, answered by a real llama.cpp.

use serde_json::{Value, json};

use super::fleet;
use super::fleet::{Fleet, Member, three};
use crate::daemon::until;
use crate::http;
use crate::http::Answer;

fn roomy(members: &[Member]) -> Fleet {
    Fleet::start(members, "", |needs| needs.iter().sum())
}

#[test]
fn engines_answer_on_every_route_of_theirs_by_the_model_in_body_or_query() {
    let fleet = roomy(&three());
    let address = fleet.daemon.address;
    let posts = [
        ("/completion", json!({"model": "alpha", "prompt": "the ship", "n_predict": 3}), "content"),
        ("/v1/completions", json!({"model": "alpha", "prompt": "a", "max_tokens": 3}), "choices"),
        ("/tokenize", json!({"model": "alpha", "content": "the ship"}), "tokens"),
        ("/detokenize", json!({"model": "alpha", "tokens": [70, 71]}), "content"),
        (
            "/apply-template",
            json!({"model": "beta", "messages": [{"role": "user", "content": "a"}]}),
            "prompt",
        ),
        ("/v1/embeddings", json!({"model": "gamma", "input": ["a"]}), "data"),
        ("/upstream/beta/tokenize", json!({"content": "the ship"}), "tokens"),
    ];
    for (path, body, key) in posts {
        let answer = http::post(address, path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(!answer.json()[key].is_null(), "{path}: {}", answer.text());
    }
    let props = http::get(address, "/props?model=alpha").json();
    assert_eq!(props["model_alias"], "alpha");
    let slots = http::get(address, "/slots?model=beta").json();
    assert_eq!(slots.as_array().unwrap().len(), 2);
    // What an engine refuses is passed on as it is.
    let refused =
        http::post(address, "/rerank", &json!({"model": "gamma", "query": "a", "documents": ["b"]}));
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (501, &json!("not_supported_error")));
}

#[test]
fn models_are_loaded_listed_and_unloaded_by_hand() {
    let fleet = roomy(&three());
    let daemon = &fleet.daemon;
    let address = daemon.address;
    let order = |path: &str| http::post(address, path, &json!({"model": "beta"}));
    assert_eq!(order("/models/load").json(), json!({"success": true}));
    until("beta is up", || daemon.running() == ["beta"]);
    let listed = http::get(address, "/models").json();
    let beta = listed["data"].as_array().unwrap().iter().find(|model| model["id"] == "beta");
    assert_eq!(beta.unwrap()["status"]["value"], "loaded");
    assert_eq!(beta.unwrap()["meta"]["n_embd"], 128);
    assert!(http::get(address, "/logs").text().contains("[beta] "));
    let metrics = http::get(address, "/metrics").text();
    assert!(metrics.contains("plimsoll_loads_total{model=\"beta\"} 1"), "{metrics}");
    assert_eq!(order("/models/unload").json(), json!({"success": true}));
    until("nothing is claimed", || daemon.claimed() == 0 && daemon.engines().is_empty());
    assert_eq!(order("/models/unload").status, 400);
}

#[test]
fn a_model_that_never_fits_is_refused_with_the_reason_and_nothing_starts() {
    let members = [Member::new("alpha", "tiny", ""), Member::new("crowd", "tiny", "-c 1048576 -np 256")];
    let fleet = Fleet::start(&members, "", |needs| needs[0] * 2);
    let answer = fleet::chat(fleet.daemon.address, "crowd");
    assert_eq!(answer.status, 413, "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "never_fits");
    assert!(!error["hints"].as_array().unwrap().is_empty(), "{error}");
    assert!(fleet.daemon.engines().is_empty());
    assert_eq!(fleet::chat(fleet.daemon.address, "alpha").status, 200);
}

#[test]
fn keys_are_asked_for_and_pages_of_a_named_origin_may_use_the_server() {
    let fleet = Fleet::start(
        &three()[..1],
        "[serve]\napi-keys = [\"secret\"]\nallow-origins = [\"localhost\"]\n",
        |needs| needs[0],
    );
    let ask = |method: &str, headers: &str, body: Option<&Value>| -> Answer {
        let address = fleet.daemon.address;
        http::read(&http::open_with(address, method, "/v1/chat/completions", headers, body))
    };
    let chat = http::chat_body("alpha", false);
    assert_eq!(ask("POST", "", Some(&chat)).status, 401);
    assert_eq!(ask("POST", "Authorization: Bearer wrong\r\n", Some(&chat)).status, 401);
    assert_eq!(ask("POST", "Authorization: Bearer secret\r\n", Some(&chat)).status, 200);
    // A browser asks first, and without a key.
    let origin = "http://localhost:3000";
    let headers = format!("Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\n");
    let preflight = ask("OPTIONS", &headers, None);
    assert_eq!(preflight.status, 200);
    assert_eq!(preflight.header("access-control-allow-origin"), Some(origin));
}
