//! Tests of the fake engine's HTTP endpoints.

use std::io::Write;

use serde_json::json;

use super::process::Double;

const CHAT: &str = r#"{"model":"alpha","messages":[{"role":"user","content":"hi"}]}"#;
const CHAT_STREAM: &str = r#"{"model":"alpha","stream":true,"messages":[]}"#;

#[test]
fn every_endpoint_answers_with_json() {
    let double = Double::ready("");
    for path in ["/health", "/v1/models", "/props", "/slots", "/fake/env", "/fake/stats"] {
        let reply = double.get(path);
        assert_eq!((reply.status, reply.json().is_null()), (200, false), "{path}");
    }
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/completion",
        "/infill",
        "/v1/embeddings",
        "/embedding",
        "/embeddings",
        "/rerank",
        "/v1/rerank",
        "/tokenize",
        "/detokenize",
    ] {
        let reply = double.post(path, r#"{"documents":["a"],"content":"abcdefgh"}"#);
        assert_eq!((reply.status, reply.json().is_null()), (200, false), "{path}");
    }
    assert!(double.get("/metrics").body.contains("llamacpp:requests_processing 0\n"));
    assert_eq!(double.get("/nothing").status, 404);
}

#[test]
fn an_answer_names_its_model_port_and_process() {
    let double = Double::ready("answer_bytes=100");
    let reply = double.post("/v1/chat/completions", CHAT);
    let answer = reply.json();
    assert_eq!((&answer["model"], &answer["fake"]["port"]), (&json!("alpha"), &json!(double.port)));
    assert_eq!(answer["choices"][0]["message"]["content"].as_str().unwrap().len(), 100);
    assert_eq!(answer["usage"]["prompt_tokens"], json!(CHAT.len() / 4));
    assert!(reply.head.contains(&format!("X-Fake-Engine: model=alpha; port={}; pid=", double.port)));
}

#[test]
fn a_stream_is_an_opening_the_events_an_end_and_done() {
    let reply = Double::ready("events=5 event_bytes=20").post("/v1/chat/completions", CHAT_STREAM);
    let events = reply.events();
    assert_eq!((reply.is_whole, events.len(), events[7]), (true, 8, "[DONE]"));
    let third: serde_json::Value = serde_json::from_str(events[3]).unwrap();
    assert_eq!(third["choices"][0]["delta"]["content"], "2 xxxxxxxxxxxxxxxxxx");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(events[6]).unwrap()["choices"][0]["finish_reason"],
        "stop"
    );
}

#[test]
fn one_connection_carries_many_requests_and_many_framings() {
    let double = Double::ready("");
    let mut client = double.connect();
    assert_eq!(client.send("POST", "/v1/chat/completions", CHAT).status, 200);
    assert!(client.send("POST", "/v1/chat/completions", CHAT_STREAM).is_whole);
    let large = format!(r#"{{"content":"{}"}}"#, "x".repeat(2 << 20));
    assert_eq!(client.send("POST", "/completion", &large).json()["tokens_evaluated"], json!(large.len() / 4));
    let chunked = "POST /completion HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n4;x=y\r\n:123\r\n1\r\n}\r\n0\r\n\r\n";
    client.socket.get_mut().write_all(chunked.as_bytes()).unwrap();
    assert_eq!(client.read().json()["tokens_evaluated"], 2);
    client.write("POST", "/completion", "Expect: 100-continue\r\n", "{}");
    assert_eq!([client.read_interim(), client.read().status], [100, 200]);
    assert_eq!(double.get("/fake/stats").json()["connections"], 2);
}

#[test]
fn a_key_is_asked_of_all_but_health() {
    let mut double = Double::spawn("", &["--api-key", "secret"], false);
    double.wait_for_log("listening");
    assert_eq!((double.get("/health").status, double.get("/props").status), (200, 401));
    let mut client = double.connect();
    client.write("GET", "/props", "Authorization: Bearer secret\r\n", "");
    assert_eq!(client.read().status, 200);
}

#[test]
fn the_environment_of_the_process_can_be_asked_for() {
    let answer = Double::ready("").get("/fake/env").json();
    assert_eq!(answer["env"]["CUDA_VISIBLE_DEVICES"], "GPU-1");
    assert!(answer["argv"].as_array().unwrap().contains(&json!("--alias")));
}

#[test]
fn a_client_that_leaves_is_counted_as_aborted() {
    let double = Double::ready("events=1000 event_ms=5");
    let mut client = double.connect();
    client.write("POST", "/v1/completions", "", CHAT_STREAM);
    let observer = || double.get("/fake/stats").json();
    while observer()["in_flight"] == 0 {}
    drop(client);
    while observer()["in_flight"] == 1 {}
    assert_eq!((&observer()["aborted"], &observer()["in_flight"]), (&json!(1), &json!(0)));
}

#[test]
fn a_connection_ends_after_its_share_of_requests_or_silence() {
    let double = Double::ready("keep_alive_max=2 idle_close_ms=30");
    let mut client = double.connect();
    assert!(!client.send("GET", "/health", "").head.contains("Connection:"));
    assert!(client.send("GET", "/health", "").head.contains("Connection: close"));
    assert_eq!(client.read().status, 0);
    assert_eq!(double.connect().read().status, 0);
}

#[test]
fn by_default_a_connection_carries_a_hundred_requests_as_with_llama_server() {
    let double = Double::ready("");
    let mut client = double.connect();
    for _ in 1..100 {
        assert!(client.send("GET", "/health", "").head.contains("Keep-Alive: timeout=5, max=100\r\n"));
    }
    assert!(client.send("GET", "/health", "").head.contains("Connection: close\r\n"));
    assert_eq!(client.read().status, 0);
}
