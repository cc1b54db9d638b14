//! Tests of the server's own endpoints: listings, load and unload, events and metrics.

use plimsoll_log::LogSource;
use plimsoll_scheduler::ModelState;
use serde_json::{Value, json};

use super::stub::*;

async fn ask(stage: &Stage, line: &str, body: &str) -> (u16, String) {
    let mut client = stage.client().await;
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    write(&mut client, &format!("{head}{body}")).await;
    let answer = read_to_close(&mut client).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

async fn ask_json(stage: &Stage, line: &str) -> Value {
    let (status, body) = ask(stage, line, "").await;
    assert_eq!(status, 200, "{line}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn models_are_listed_in_the_shapes_that_clients_know() {
    on_stage(|stage| async move {
        for path in ["/v1/models", "/models"] {
            let list = ask_json(&stage, &format!("GET {path}")).await;
            assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("real")));
        }
        assert_eq!(ask_json(&stage, "GET /v1/models/user%2Freal:Q4").await["object"], "model");
        assert_eq!(ask(&stage, "GET /v1/models/zz", "").await.0, 404);
        let running = ask_json(&stage, "GET /running").await;
        assert_eq!(running["running"][0]["state"], "ready");
        stage.service.state.set(ModelState::Unloaded);
        assert_eq!(ask_json(&stage, "GET /running").await, json!({"running": []}));
        assert_eq!(ask_json(&stage, "GET /props").await["role"], "router");
        assert_eq!(ask_json(&stage, "GET /api/status").await["models"][0]["queued"], 2);
        assert_eq!(ask_json(&stage, "GET /api/version").await["name"], "plimsoll");
    });
}

#[test]
fn a_yield_reaches_the_owner_only_with_a_size_and_a_time() {
    on_stage(|stage| async move {
        for (line, body, status) in [
            ("POST", r#"{"size":"8GiB","for":"2h"}"#, 200),
            ("POST", r#"{"size":8589934592,"card":"GPU-1","for":60}"#, 200),
            ("POST", r#"{"size":"8GiB","card":"GPU-2","for":60}"#, 404),
            ("DELETE", "", 200),
            ("GET", "", 200),
            ("POST", "", 400),
            ("POST", "[]", 400),
            ("POST", r#"{"size":"8GiB","colour":"red"}"#, 400),
            ("POST", r#"{"size":"much"}"#, 400),
            ("POST", r#"{"size":0}"#, 400),
            ("POST", r#"{"size":-1}"#, 400),
            ("POST", r#"{"size":1e30}"#, 400),
            ("POST", r#"{"size":"8GiB","for":"0s"}"#, 400),
            ("POST", r#"{"size":"8GiB","for":[]}"#, 400),
            ("PUT", r#"{"size":"8GiB"}"#, 405),
        ] {
            let (got, text) = ask(&stage, &format!("{line} /api/yield"), body).await;
            assert_eq!(got, status, "{line} {body}: {text}");
        }
        assert_eq!(*stage.service.orders.borrow(), ["yield", "yield", "yield", "end yield"]);
        assert_eq!(ask_json(&stage, "GET /api/yield").await, json!({"yields": []}));
    });
}

#[test]
fn orders_reach_the_owner_only_where_they_make_sense() {
    on_stage(|stage| async move {
        let body = r#"{"model":"alias"}"#;
        let (status, text) = ask(&stage, "POST /models/load", body).await;
        assert!(status == 400 && text.contains("model is already running"), "{text}");
        assert_eq!(ask(&stage, "POST /models/unload", body).await, (200, r#"{"success":true}"#.to_owned()));
        assert_eq!(ask(&stage, "POST /api/models/unload/real", "").await.0, 200);
        // llama-swap's path for all unloads the one that its body names.
        assert_eq!(
            ask(&stage, "POST /api/models/unload", body).await,
            (200, r#"{"success":true}"#.to_owned())
        );
        assert_eq!(ask(&stage, "POST /api/models/unload", r#"{"model":"zz"}"#).await.0, 404);
        assert_eq!(ask(&stage, "GET /unload", "").await, (200, "OK".to_owned()));
        assert_eq!(ask(&stage, "POST /api/models/pin?for=9", body).await.0, 200);
        assert_eq!(ask(&stage, "POST /api/models/pin?for=0", body).await.0, 400);
        assert_eq!(ask(&stage, "GET /api/models/pin", body).await.0, 405);
        assert_eq!(ask(&stage, "POST /api/models/unpin", body).await.0, 200);
        stage.service.state.set(ModelState::Failed);
        let (status, text) = ask(&stage, "POST /models/unload", body).await;
        assert!(status == 400 && text.contains("model is not running"), "{text}");
        assert_eq!(ask(&stage, "POST /api/models/unload", "").await.0, 200);
        assert_eq!(ask(&stage, "POST /models/load", body).await.0, 200);
        assert_eq!(ask(&stage, "POST /models/load", r#"{"model":"zz"}"#).await.0, 404);
        assert_eq!(ask(&stage, "GET /models?reload=1", "").await.0, 200);
        assert_eq!(
            *stage.service.orders.borrow(),
            ["unload", "unload", "unload", "unload", "pin", "unpin", "load", "reload"]
        );
    });
}

#[test]
fn changes_are_reported_to_those_who_watch() {
    on_stage(|stage| async move {
        let mut models = stage.client().await;
        write(&mut models, "GET /models/sse HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(read_until(&mut models, "\r\n\r\n").await.contains("Content-Type: text/event-stream\r\n"));
        let mut status = stage.client().await;
        write(&mut status, "GET /api/status/stream HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let first = read_until(&mut status, "}\n\n\r\n").await;
        assert!(first.contains("\"now\":0.0"), "{first}");
        stage.service.events.state_changed("real", ModelState::Loading, &Value::Null);
        let reported = read_until(&mut models, "\n\n\r\n").await;
        assert!(
            reported.contains(r#""event":"model_status""#) && reported.contains(r#"{"status":"loading"}"#),
            "{reported}"
        );
        stage.service.events.show(|| crate::ModelService::document(&*stage.service));
        read_until(&mut status, "}\n\n\r\n").await;
    });
}

#[test]
fn a_dry_run_takes_settings_and_nothing_else() {
    on_stage(|stage| async move {
        let (status, text) = ask(&stage, "GET /api/what-if?model=real&context=8192&cache=q8_0", "").await;
        assert!(status == 200 && text.contains(r#""--ctx-size","8192","--cache-type-k","q8_0""#), "{text}");
        for (query, expected) in
            [("model=zz", 404), ("", 404), ("model=real&slots=0", 400), ("yield=-1GiB&card=GPU-1", 400)]
        {
            assert_eq!(ask(&stage, &format!("GET /api/what-if?{query}"), "").await.0, expected, "{query}");
        }
        let (status, text) = ask(&stage, "GET /api/what-if?yield=2GiB&card=GPU-1", "").await;
        assert!(status == 200 && text.contains(r#"{"size":2147483648}"#), "{text}");
        assert!(stage.service.orders.borrow().is_empty(), "nothing was done");
    });
}

#[test]
fn a_browser_gets_the_page_and_a_program_the_paths() {
    on_stage(|stage| async move {
        for path in ["/ui", "/ui/"] {
            let (status, text) = ask(&stage, &format!("GET {path}"), "").await;
            assert!(status == 200 && text.starts_with("<!doctype html>"), "{text}");
        }
        assert!(ask(&stage, "GET /api", "").await.1.starts_with("plimsoll "));
        let mut browser = stage.client().await;
        write(&mut browser, "GET / HTTP/1.1\r\nhost: localhost\r\naccept: text/html,*/*\r\n\r\n").await;
        let head = read_until(&mut browser, "</html>\n").await;
        assert!(head.to_ascii_lowercase().contains("content-security-policy: default-src 'none'"), "{head}");
    });
}

#[test]
fn logs_are_shown_and_streamed() {
    on_stage(|stage| async move {
        stage.service.log.push(LogSource::Stderr, "loaded".to_owned());
        assert_eq!(ask(&stage, "GET /logs", "").await, (200, "[real] loaded\n".to_owned()));
        let mut stream = stage.client().await;
        write(&mut stream, "GET /logs/stream/real HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        read_until(&mut stream, "[real] loaded\n\r\n").await;
        stage.service.log.push(LogSource::Stderr, "more".to_owned());
        read_until(&mut stream, "[real] more\n\r\n").await;
        assert_eq!(ask(&stage, "GET /logs/stream/zz", "").await.0, 404);
    });
}

#[test]
fn metrics_count_what_was_answered_beside_what_the_owner_counts() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/tokenize", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        read_until(&mut client, "ok").await;
        let (_, page) = ask(&stage, "GET /metrics", "").await;
        for line in [
            "plimsoll_requests_total{model=\"real\",code=\"2xx\"} 1",
            "plimsoll_first_byte_seconds_count{model=\"real\"} 1",
            "plimsoll_requests_queued{model=\"real\"} 2",
            "plimsoll_model_ready{model=\"real\"} 1",
            "plimsoll_loads_total{model=\"real\"} 7",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
        let mut engines = stage.client().await;
        write(&mut engines, "GET /metrics?model=real HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(read_request(&mut engine).await.starts_with("GET /metrics?model=real "));
    });
}
