//! Tests of API keys that are limited to some models: which endpoints they do not reach, and what ends when a
//! key is revoked.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_config::{ConfiguredKey, KeyRight, KeySecret};
use plimsoll_log::LogSource;
use serde_json::json;
use tokio::net::TcpStream;

use super::stub::*;
use crate::{ApiKeys, HttpSettings};

/// A key with all rights for models of this pattern.
fn key(name: &str, models: &str) -> ConfiguredKey {
    let secret = KeySecret::Text(format!("key-of-{name}"));
    ConfiguredKey {
        rights: KeyRight::ALL.to_vec(),
        models: Some(vec![models.to_owned()]),
        ..ConfiguredKey::unlimited(name.to_owned(), secret)
    }
}

fn settings() -> HttpSettings {
    let keys = vec![key("some", "re*"), key("same", "re*"), key("other", "x-*")];
    HttpSettings { keys: ApiKeys::new(keys), ..HttpSettings::default() }
}

fn request(name: &str, line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nx-api-key: key-of-{name}\r\n{headers}\
        content-length: {length}\r\n\r\n{body}"
    )
}

async fn send(stage: &Stage, name: &str, line: &str, headers: &str, body: &str) -> TcpStream {
    let mut client = stage.client().await;
    write(&mut client, &request(name, line, headers, body)).await;
    client
}

/// The whole answer of this server.
async fn ask(stage: &Stage, name: &str, line: &str, body: &str) -> String {
    let mut client = send(stage, name, line, "connection: close\r\n", body).await;
    read_to_close(&mut client).await
}

const CHAT: &str = r#"{"model":"real"}"#;

#[test]
fn global_endpoints_need_a_key_for_all_models() {
    on_stage_with(settings(), 0, |stage| async move {
        stage.service.log.push(LogSource::Stderr, "a prompt".to_owned());
        let failures = [json!({"name": "real"}), json!({"name": "x-1"}), json!({"name": null}), json!({})];
        stage.service.failures.replace(failures.to_vec());
        for name in ["some", "other"] {
            for line in [
                "GET /logs",
                "GET /logs/stream",
                "GET /logs/stream/",
                "POST /api/reload",
                "GET /v1/models?reload",
                "POST /api/yield",
                "DELETE /api/yield",
            ] {
                let answer = ask(&stage, name, line, r#"{"size":"1GiB","for":60}"#).await;
                assert!(answer.starts_with("HTTP/1.1 403 "), "{name} {line}: {answer}");
                assert!(answer.contains("model_not_permitted") && !answer.contains("prompt"), "{answer}");
            }
        }
        assert!(stage.service.orders.borrow().is_empty());
        assert!(ask(&stage, "some", "GET /logs?model=alias", "").await.contains("a prompt"));
        for (name, own, foreign) in [("some", "\"real\"", "x-1"), ("other", "\"x-1\"", "real")] {
            let answer = ask(&stage, name, "GET /api/failures", "").await;
            assert!(
                answer.contains(own) && !answer.contains(foreign) && !answer.contains("null"),
                "{answer}"
            );
        }
        for line in ["GET /logs?model=real", "GET /api/what-if?model=real", "GET /upstream/real/x"] {
            assert!(ask(&stage, "other", line, "").await.starts_with("HTTP/1.1 403 "), "{line}");
        }
        let running = ask(&stage, "other", "GET /running", "").await;
        assert!(running.contains("\"running\":[]"), "{running}");
    });
}

#[test]
fn a_conversation_is_known_to_its_own_key_alone() {
    on_stage_with(settings(), 0, |stage| async move {
        let id = "x-conversation-id: talk::real\r\n";
        let mut client = send(&stage, "some", "POST /v1/chat/completions", id, CHAT).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        for (name, status) in [("other", "404"), ("same", "404")] {
            // Neither the queue nor the engine hears of these.
            for line in ["DELETE /v1/stream?conv_id=talk::real", "GET /v1/stream?conv_id=talk::real"] {
                let answer = ask(&stage, name, line, "").await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name} {line}: {answer}");
            }
            let answer =
                ask(&stage, name, "POST /v1/streams/lookup", r#"{"conversation_ids":["talk::real"]}"#).await;
            assert!(answer.ends_with("[]"), "{answer}");
        }
        let unknown = ask(&stage, "other", "DELETE /v1/stream?conv_id=new::real", "").await;
        assert!(unknown.starts_with("HTTP/1.1 403 "), "{unknown}");
        // A request that is refused takes no conversation's place.
        let refused = send(&stage, "other", "POST /v1/chat/completions", id, CHAT).await;
        assert!(read_until(&mut { refused }, "}").await.starts_with("HTTP/1.1 403 "));
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndata").await;
        assert!(read_until(&mut client, "data").await.starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn a_time_to_live_below_the_configured_one_needs_the_right_to_unload() {
    let secret = |name: &str| KeySecret::Text(format!("key-of-{name}"));
    let user = ConfiguredKey::unlimited("user".to_owned(), secret("user"));
    let user = ConfiguredKey { rights: vec![KeyRight::Use], ..user };
    let keys = ApiKeys::new(vec![user, key("some", "re*")]);
    on_stage_with(HttpSettings { keys, ..HttpSettings::default() }, 0, |stage| async move {
        // The stub's model has 300 s.
        let day = Some(Duration::from_secs(86_400));
        for (name, keep, kept) in [
            ("user", json!("1ns"), None),
            ("user", json!(0.5), None),
            ("user", json!("299s"), None),
            ("user", json!("24h"), day),
            ("user", json!(-1), Some(Duration::MAX)),
            ("some", json!("1ns"), Some(Duration::from_nanos(1))),
        ] {
            let body = json!({ "model": "real", "keep_alive": keep }).to_string();
            let answer = ask(&stage, name, "POST /api/generate", &body).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{name} {keep}: {answer}");
            assert_eq!(stage.service.kept.borrow_mut().pop(), Some(kept), "{name} {keep}");
        }
        let body = json!({ "model": "real", "keep_alive": 0 }).to_string();
        let answer = ask(&stage, "user", "POST /api/generate", &body).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("`change`"), "{answer}");
        assert!(stage.service.kept.borrow().is_empty());
    });
}

#[test]
fn only_the_operator_may_make_this_machine_ask_its_own_network() {
    let mut keys = settings();
    keys.keys = ApiKeys::new(vec![
        ConfiguredKey::unlimited(String::new(), KeySecret::Text("key-of-root".to_owned())),
        ConfiguredKey { models: None, ..key("named", "") },
    ]);
    on_stage_with(keys, 0, |stage| async move {
        for (name, public_only) in [("root", false), ("named", true)] {
            ask(&stage, name, "POST /models", r#"{"model":"http://127.0.0.1:1/m.gguf"}"#).await;
            let pull =
                send(&stage, name, "POST /api/pull", "", r#"{"model":"http://127.0.0.1:1/m.gguf"}"#).await;
            while stage.service.ordered.borrow().len() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(pull);
            let orders = stage.service.ordered.take();
            assert!(
                orders.len() == 2 && orders.iter().all(|order| order.public_only == public_only),
                "{orders:?}"
            );
        }
    });
}

#[test]
fn feeds_and_websockets_end_with_their_key() {
    const ASK: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
        sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let all = |name: &str| ConfiguredKey { models: None, ..key(name, "") };
    let without = |rights: &[KeyRight]| ConfiguredKey { rights: rights.to_vec(), ..all("a") };
    let soon = jiff::Timestamp::now() + Duration::from_millis(400);
    for (before, after) in [
        (all("a"), vec![all("b")]),
        (all("a"), vec![without(&[KeyRight::Use])]),
        (all("a"), vec![key("a", "x-*")]),
        (ConfiguredKey { expires: Some(soon), ..all("a") }, vec![]),
    ] {
        let keys = ApiKeys::new(vec![before]);
        on_stage_with(HttpSettings { keys, ..HttpSettings::default() }, 0, |stage| async move {
            let mut socket = send(&stage, "a", "GET /upstream/real/ws", ASK, "").await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            write(&mut engine, AGREE).await;
            read_until(&mut socket, "\r\n\r\n").await;
            let mut logs = send(&stage, "a", "GET /logs/stream/real", "", "").await;
            let mut all = send(&stage, "a", "GET /logs/stream", "", "").await;
            for feed in [&mut logs, &mut all] {
                read_until(feed, "\r\n\r\n").await;
            }
            if !after.is_empty() {
                stage.server.settings.keys.replace(after);
            }
            assert_eq!(read_some(&mut socket).await, "", "the websocket is closed");
            for feed in [&mut logs, &mut all] {
                assert_eq!(read_some(feed).await, "0\r\n\r\n", "the feed ends");
            }
            stage.until_idle().await;
        });
    }
}

#[test]
fn a_websocket_uses_the_tokens_of_its_key_and_ends_with_them() {
    const ASK: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
        sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let mut limited = ConfiguredKey { models: None, ..key("a", "") };
    limited.tokens_per_minute = NonZeroU32::new(100);
    limited.concurrency = NonZeroU32::new(1);
    let keys = ApiKeys::new(vec![limited]);
    on_stage_with(HttpSettings { keys, ..HttpSettings::default() }, 0, |stage| async move {
        let mut socket = send(&stage, "a", "GET /v1/realtime?model=real", ASK, "").await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, AGREE).await;
        read_until(&mut socket, "\r\n\r\n").await;
        let busy = ask(&stage, "a", "POST /v1/chat/completions", CHAT).await;
        assert!(busy.starts_with("HTTP/1.1 429 ") && busy.contains("1 request at a time"), "{busy}");
        write(&mut socket, &"x".repeat(300)).await;
        read_until(&mut engine, "x").await;
        write(&mut engine, &"y".repeat(300)).await;
        read_to_close(&mut socket).await;
        stage.until_idle().await;
        let over = ask(&stage, "a", "POST /v1/chat/completions", CHAT).await;
        assert!(over.starts_with("HTTP/1.1 429 ") && over.contains("100 tokens per minute"), "{over}");
    });
}
