//! Tests of a real llama.cpp on a Unix socket, over every route from a client to the engine.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::fleet;
use super::fleet::{Fleet, Member};
use crate::daemon::until;
use crate::http;

#[test]
fn the_engine_serves_streams_and_ends_on_a_socket_that_only_its_user_reaches() {
    let fleet = Fleet::start(&[Member::new("alpha", "tiny", "")], "", |needs| needs[0]);
    let daemon = &fleet.daemon;
    assert_eq!(fleet::chat(daemon.address, "alpha").status, 200);
    let running = http::get(daemon.address, "/running").json();
    let proxy = running["running"][0]["proxy"].as_str().unwrap();
    let socket = Path::new(proxy.strip_prefix("unix:").unwrap()).to_owned();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let mut body = http::chat_body("alpha", true);
    body["max_tokens"] = json!(4);
    let streamed = http::post(daemon.address, "/v1/chat/completions", &body).text();
    assert!(streamed.trim_end().ends_with("data: [DONE]"), "{streamed}");
    assert_eq!(http::get(daemon.address, "/upstream/alpha/health").status, 200);
    http::post(daemon.address, "/unload", &Value::Null);
    until("the engine and its folder are gone", || {
        daemon.engines().is_empty() && !socket.parent().unwrap().exists()
    });
}
