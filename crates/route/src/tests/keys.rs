//! Tests of API keys with rights, models and limits.

use std::num::NonZeroU32;

use plimsoll_base::Priority;
use plimsoll_config::{ConfiguredKey, KeyRight, KeySecret};
use serde_json::Value;

use super::stub::*;
use crate::{ApiKeys, HttpSettings};

fn key(name: &str, rights: &[KeyRight]) -> ConfiguredKey {
    let secret = KeySecret::Text(format!("key-of-{name}"));
    ConfiguredKey { rights: rights.to_vec(), ..ConfiguredKey::unlimited(name.to_owned(), secret) }
}

fn on_stage_of<F: Future<Output = ()>>(keys: Vec<ConfiguredKey>, play: impl FnOnce(Stage) -> F) {
    on_stage_with(HttpSettings { keys: ApiKeys::new(keys), ..HttpSettings::default() }, 0, play);
}

fn request(name: &str, line: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nx-api-key: key-of-{name}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Asks on a connection of its own; for an answer of this server.
async fn ask(stage: &Stage, name: &str, line: &str, body: &str) -> (u16, String) {
    let mut client = stage.client().await;
    let text = request(name, line, body).replace("\r\nhost", "\r\nconnection: close\r\nhost");
    write(&mut client, &text).await;
    let answer = read_to_close(&mut client).await;
    (answer[9..12].parse().unwrap(), answer)
}

/// A request that the engine answers with `tokens`; afterwards no other is in flight.
async fn chat(stage: &Stage, name: &str, tokens: u32) -> (u16, String) {
    let answer = chat_alongside(stage, name, tokens).await;
    stage.until_idle().await;
    answer
}

/// The same beside other requests.
async fn chat_alongside(stage: &Stage, name: &str, tokens: u32) -> (u16, String) {
    let mut client = stage.client().await;
    write(&mut client, &request(name, "POST /v1/chat/completions", CHAT)).await;
    tokio::select! {
        answer = read_some(&mut client) => return (answer[9..12].parse().unwrap(), answer),
        mut engine = stage.engine() => {
            read_request(&mut engine).await;
            let body = format!("{{\"usage\":{{\"total_tokens\":{tokens}}}}}");
            let length = body.len();
            write(&mut engine, &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")).await;
        }
    }
    let answer = read_until(&mut client, "}}").await;
    (answer[9..12].parse().unwrap(), answer)
}

const CHAT: &str = r#"{"model":"real"}"#;

#[test]
fn each_request_needs_a_right_and_the_refusal_names_it() {
    let keys = vec![
        key("use", &[KeyRight::Use]),
        key("see", &[KeyRight::See]),
        key("change", &[KeyRight::Change]),
        key("operate", &[KeyRight::Operate]),
    ];
    on_stage_of(keys, |stage| async move {
        for (line, body, allowed) in [
            ("GET /v1/models", "", "use see"),
            ("GET /api/tags", "", "use see"),
            ("GET /v1/models/real", "", "use see"),
            ("GET /api/version", "", "use see"),
            ("GET /api/status", "", "see"),
            ("GET /metrics", "", "see"),
            ("GET /running", "", "see"),
            ("GET /api/yield", "", "see"),
            ("POST /models/unload", CHAT, "change"),
            ("POST /api/models/pin", CHAT, "change"),
            ("POST /unload", "", "change"),
            ("GET /unload", "", "change"),
            ("GET /logs", "", "operate"),
            ("POST /api/reload", "", "operate"),
            ("GET /v1/models?reload=1", "", "operate"),
            ("DELETE /api/yield", "", "operate"),
            ("POST /models", r#"{"model":"u/r:Q4"}"#, "operate"),
            ("DELETE /models?model=u%2Fr:Q4", "", "operate"),
            ("GET /", "", "use see change operate"),
        ] {
            for name in ["use", "see", "change", "operate"] {
                let (status, answer) = ask(&stage, name, line, body).await;
                let expected = if allowed.split(' ').any(|it| it == name) { 200 } else { 403 };
                assert_eq!(status, expected, "{line} with {name}: {answer}");
                if status == 403 {
                    let right = allowed.replace(' ', "` or `");
                    assert!(
                        answer.contains(&format!("the API key {name} lacks the right `{right}`")),
                        "{answer}"
                    );
                }
            }
        }
        for line in [
            "POST /v1/chat/completions",
            "POST /api/chat",
            "GET /props?model=real",
            "POST /v1/messages",
            "GET /v1/stream?conv_id=a",
        ] {
            assert_eq!(ask(&stage, "see", line, CHAT).await.0, 403, "{line}");
        }
        for line in
            ["GET /slots?model=real", "POST /slots/0?action=erase", "POST /upstream/real/x", "GET /tools"]
        {
            assert_eq!(ask(&stage, "use", line, CHAT).await.0, 403, "{line}");
        }
        assert_eq!(stage.service.options.borrow().len(), 0, "no engine was asked");
        assert_eq!(ask(&stage, "unknown", "GET /v1/models", "").await.0, 401);
    });
}

#[test]
fn a_key_sees_and_uses_its_own_models_only() {
    let limited = |name: &str, models: &[&str]| ConfiguredKey {
        models: Some(models.iter().map(|model| (*model).to_owned()).collect()),
        ..key(name, &[KeyRight::Use, KeyRight::Change, KeyRight::Operate])
    };
    on_stage_of(vec![limited("some", &["re*"]), limited("other", &["x-*"])], |stage| async move {
        assert_eq!(chat(&stage, "some", 1).await.0, 200);
        let (_, list) = ask(&stage, "some", "GET /v1/models", "").await;
        assert!(list.contains("\"real\""), "{list}");
        for line in ["GET /v1/models", "GET /models", "GET /api/tags", "GET /api/v0/models"] {
            let (status, list) = ask(&stage, "other", line, "").await;
            assert!(status == 200 && !list.contains("real"), "{list}");
        }
        for line in [
            "POST /v1/chat/completions",
            "POST /models/load",
            "POST /models/unload",
            "POST /api/models/pin",
            "GET /v1/models/real",
            "GET /api/v0/models/real",
            "GET /logs/stream/real",
            "POST /upstream/real/v1/chat/completions",
            "POST /api/chat",
            "POST /api/show",
        ] {
            let (status, answer) = ask(&stage, "other", line, CHAT).await;
            assert!(status == 403 && answer.contains("does not permit the model 'real'"), "{line}: {answer}");
        }
        let (status, answer) = ask(&stage, "other", "POST /v1/chat/completions", r#"{"model":"no"}"#).await;
        assert!(status == 404 && !answer.contains("real"), "{answer}");
        assert_eq!(ask(&stage, "other", "POST /unload", "").await.0, 200);
        assert_eq!(*stage.service.orders.borrow(), [""; 0], "no model was touched");
    });
}

#[test]
fn limits_refuse_with_the_wait_and_in_the_dialect_of_the_client() {
    let one = NonZeroU32::new(1);
    let mut keys = ["requests", "busy", "tokens", "free"].map(|name| key(name, &[KeyRight::Use])).to_vec();
    keys[0].requests_per_minute = one;
    keys[1].concurrency = one;
    keys[2].tokens_per_minute = NonZeroU32::new(60);
    on_stage_of(keys, |stage| async move {
        assert_eq!(chat(&stage, "requests", 1).await.0, 200);
        let (status, answer) = ask(&stage, "requests", "POST /v1/chat/completions", CHAT).await;
        assert!(status == 429 && answer.contains("\r\nRetry-After: 60\r\n"), "{answer}");
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(
            (&body["error"]["type"], &body["error"]["code"]),
            (&"rate_limit_error".into(), &"rate_limit_exceeded".into())
        );
        let (status, answer) = ask(&stage, "requests", "POST /v1/messages", CHAT).await;
        assert!(
            status == 429 && answer.contains(r#""type":"error""#) && answer.contains("rate_limit_error"),
            "{answer}"
        );
        let (status, answer) = ask(&stage, "requests", "POST /api/chat", CHAT).await;
        assert!(
            status == 429 && answer.contains(r#""error":"the API key requests is limited to 1 requests"#),
            "{answer}"
        );

        // The tokens of an answer count when it is over; the allowance may be overdrawn once.
        assert_eq!(chat(&stage, "tokens", 59).await.0, 200);
        assert_eq!(chat(&stage, "tokens", 100).await.0, 200);
        let (status, answer) = chat(&stage, "tokens", 1).await;
        assert!(status == 429 && answer.contains("60 tokens per minute"), "{answer}");

        // A request in progress holds its place, and gives it back when its client leaves.
        let mut client = stage.client().await;
        write(&mut client, &request("busy", "POST /v1/chat/completions", CHAT)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        assert_eq!(ask(&stage, "busy", "POST /v1/chat/completions", CHAT).await.0, 429);
        assert_eq!(chat_alongside(&stage, "free", 1).await.0, 200, "another key is not limited");
        drop(client);
        stage.until_idle().await;
        assert_eq!(chat(&stage, "busy", 1).await.0, 200);
        let page = &stage.server.settings.keys;
        let mut metrics = crate::Exposition::default();
        page.write(&mut metrics);
        let text = metrics.finish();
        for line in [
            "plimsoll_key_requests_total{key=\"tokens\"} 2",
            "plimsoll_key_tokens_total{key=\"tokens\"} 159",
            "plimsoll_key_refused_total{key=\"requests\"} 3",
        ] {
            assert!(text.contains(line), "{text}");
        }
    });
}

#[test]
fn a_client_that_leaves_before_the_end_has_used_tokens_all_the_same() {
    let mut limited = key("tokens", &[KeyRight::Use]);
    limited.tokens_per_minute = NonZeroU32::new(100);
    on_stage_of(vec![limited], |stage| async move {
        let mut client = stage.client().await;
        let body = format!(r#"{{"model":"real","prompt":"{}"}}"#, "x".repeat(800));
        write(&mut client, &request("tokens", "POST /v1/completions", &body)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        drop(client);
        stage.until_idle().await;
        assert_eq!(chat(&stage, "tokens", 1).await.0, 429);
    });
}

#[test]
fn a_key_has_its_priority_and_is_one_client_and_expires() {
    let mut high = key("high", &[KeyRight::Use]);
    high.priority = Priority::High;
    let mut old = key("old", &[KeyRight::Use]);
    old.expires = Some("2020-01-01T00:00:00Z".parse().unwrap());
    let mut hasty = key("hasty", &[KeyRight::Use]);
    hasty.expires = Some("2120-01-01T00:00:00Z".parse().unwrap());
    on_stage_of(vec![high, old, hasty], |stage| async move {
        for name in ["high", "hasty", "high"] {
            assert_eq!(chat(&stage, name, 1).await.0, 200);
        }
        let options = stage.service.options.borrow().clone();
        let priorities: Vec<Priority> = options.iter().map(|options| options.priority).collect();
        assert_eq!(priorities, [Priority::High, Priority::Normal, Priority::High]);
        assert!(options[0].client == options[2].client && options[0].client != options[1].client);
        let (status, answer) = ask(&stage, "old", "GET /v1/models", "").await;
        assert!(status == 401 && answer.contains("expired_api_key"), "{answer}");
    });
}

#[test]
fn a_connection_may_show_another_key_with_each_request() {
    on_stage_of(vec![key("a", &[KeyRight::See]), key("b", &[KeyRight::Use])], |stage| async move {
        let mut client = stage.client().await;
        for (name, status) in [("a", "200"), ("b", "403"), ("a", "200"), ("c", "401"), ("a", "200")] {
            write(&mut client, &request(name, "GET /running", "")).await;
            let answer = read_until(&mut client, "}").await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {answer}");
        }
    });
}

#[test]
fn flags_are_for_operators_and_a_change_of_the_file_is_for_keys_of_all_models() {
    let mut some = key("some", &KeyRight::ALL);
    some.models = Some(vec!["real".to_owned()]);
    let keys = vec![
        key("changer", &[KeyRight::Use, KeyRight::See, KeyRight::Change]),
        key("operator", &[KeyRight::Operate]),
        some,
    ];
    on_stage_of(keys, |stage| async move {
        let order = r#"{"model":"alias","flags":"-c 1","digest":"d"}"#;
        for (line, body, operator, of_some) in [
            ("GET /api/flags?model=real", "", 200, 200),
            ("GET /api/flags?model=other", "", 404, 404),
            ("GET /api/flags", "", 400, 400),
            ("POST /api/flags/plan", r#"{"model":"real","flags":"-c 1"}"#, 200, 200),
            ("POST /api/flags/plan", r#"{"model":"real"}"#, 400, 400),
            ("POST /api/flags/plan", r#"{"model":"real","flags":5}"#, 400, 400),
            ("POST /api/flags", order, 200, 403),
            ("POST /api/flags", r#"{"model":"real","flags":"-c 1"}"#, 400, 403),
            ("POST /api/flags", "[]", 400, 403),
            ("POST /api/flags/undo", r#"{"digest":"d"}"#, 200, 403),
            ("POST /api/flags/undo", r#"{"digest":"d","path":"/x"}"#, 400, 403),
        ] {
            assert_eq!(ask(&stage, "changer", line, body).await.0, 403, "{line}");
            assert_eq!(ask(&stage, "operator", line, body).await.0, operator, "{line} {body}");
            assert_eq!(ask(&stage, "some", line, body).await.0, of_some, "{line} {body}");
        }
        let (_, answer) = ask(&stage, "operator", "POST /api/flags", order).await;
        assert!(answer.contains("Save { model: ModelId(0), flags: \\\"-c 1\\\""), "{answer}");
    });
}

#[test]
fn a_status_names_the_rights_of_the_key_that_asks() {
    let keys = vec![key("viewer", &[KeyRight::See]), key("operator", &KeyRight::ALL)];
    on_stage_of(keys, |stage| async move {
        for (name, rights) in [("viewer", r#"["see"]"#), ("operator", r#"["use","see","change","operate"]"#)]
        {
            let (_, status) = ask(&stage, name, "GET /api/status", "").await;
            assert!(status.contains(&format!("\"rights\":{rights}")), "{name}: {status}");
        }
    });
}
