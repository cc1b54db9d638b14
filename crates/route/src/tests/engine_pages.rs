//! Tests of an engine's own web pages in a browser: what they may do at this server's origin, and at an
//! origin of their own.

use super::stub::*;
use crate::HttpSettings;

const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nset-cookie: a=b\r\n\
    service-worker-allowed: /\r\nclear-site-data: \"*\"\r\nplimsoll-declined: 1\r\ncontent-length: 2\r\n\
    connection: close\r\n\r\nok";

fn get(path: &str, host: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{more}\r\n")
}

/// The answer to a request that the engine answers with its page.
async fn page(stage: &Stage, request: &str) -> (String, String) {
    let mut client = stage.client().await;
    write(&mut client, request).await;
    let mut engine = stage.engine().await;
    let requested = read_request(&mut engine).await;
    write(&mut engine, PAGE).await;
    (requested, read_until(&mut client, "ok").await.to_ascii_lowercase())
}

async fn refusal(stage: &Stage, request: &str) -> String {
    let mut client = stage.client().await;
    write(&mut client, request).await;
    read_until(&mut client, "}").await
}

#[test]
fn a_document_of_an_engine_has_no_origin_and_leaves_nothing_at_this_one() {
    on_stage(|stage| async move {
        stage.service.is_only.set(true);
        for path in ["/upstream/real/page.html", "/v1/page.html?model=real", "/slots?model=real"] {
            let (_, answer) = page(&stage, &get(path, "localhost", "")).await;
            assert!(
                answer.contains("\r\ncontent-security-policy: sandbox allow-scripts"),
                "{path}: {answer}"
            );
            assert!(!answer.contains("same-origin"), "{path}: {answer}");
            for header in ["set-cookie", "service-worker-allowed", "clear-site-data", "plimsoll-"] {
                assert!(!answer.contains(header), "{path}: {answer}");
            }
        }
    });
}

#[test]
fn a_document_of_an_engine_orders_nothing_and_installs_nothing() {
    on_stage(|stage| async move {
        for origin in ["null", "http://real.engine.localhost:8080"] {
            let order = post("/models/unload", r#"{"model":"real"}"#);
            let order = order.replace("host: localhost", &format!("host: localhost\r\norigin: {origin}"));
            assert!(refusal(&stage, &order).await.starts_with("HTTP/1.1 403 "), "{origin}");
        }
        for line in ["service-worker: script\r\n", "sec-fetch-dest: serviceworker\r\n"] {
            for path in ["/upstream/real/sw.js", "/v1/sw.js?model=real"] {
                let answer = refusal(&stage, &get(path, "localhost", line)).await;
                assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
            }
        }
        assert!(stage.service.orders.borrow().is_empty() && stage.service.options.borrow().is_empty());
    });
}

#[test]
fn an_origin_of_its_own_is_the_engines_in_every_path() {
    on_stage(|stage| async move {
        let own = "real.engine.localhost:8080";
        for path in ["/", "/api/status", "/models/unload", "/ui", "/v1/models?a=b"] {
            let request = get(path, own, &format!("origin: http://{own}\r\nservice-worker: script\r\n"));
            let (requested, answer) = page(&stage, &request).await;
            assert!(requested.starts_with(&format!("GET {path} ")), "{requested}");
            assert!(!answer.contains("sandbox") && !answer.contains("set-cookie"), "{answer}");
        }
        // Another page has nothing to do there, and the API is at no such origin.
        let foreign = get("/", own, "origin: http://localhost:8080\r\n");
        assert!(refusal(&stage, &foreign).await.starts_with("HTTP/1.1 403 "));
        let gone = "gone.engine.localhost:8080";
        for path in ["/api/status", "/v1/models", "/ui", "/health"] {
            let answer = refusal(&stage, &get(path, gone, &format!("origin: http://{gone}\r\n"))).await;
            assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
        }
    });
}

#[test]
fn an_origin_of_its_own_needs_a_key_as_every_path_of_an_engine() {
    let settings = HttpSettings { keys: secret_key(), ..HttpSettings::default() };
    on_stage_with(settings, 0, |stage| async move {
        let request = get("/", "real.engine.localhost", "");
        assert!(refusal(&stage, &request).await.starts_with("HTTP/1.1 401 "));
        let keyed = get("/", "real.engine.localhost", "authorization: Bearer secret\r\n");
        page(&stage, &keyed).await;
    });
}

#[test]
fn a_page_and_its_files_may_come_compressed_and_nothing_else() {
    on_stage(|stage| async move {
        stage.service.is_only.set(true);
        let own = "real.engine.localhost:8080";
        let line = "accept-encoding: gzip, br\r\n";
        for (path, host) in
            [("/", own), ("/upstream/real/", "localhost"), ("/upstream/real/a.js", "localhost")]
        {
            let (requested, _) = page(&stage, &get(path, host, line)).await;
            assert!(requested.to_ascii_lowercase().contains(line), "{path}: {requested}");
        }
        let (requested, _) = page(&stage, &get("/slots?model=real", "localhost", line)).await;
        assert!(!requested.to_ascii_lowercase().contains("accept-encoding"), "{requested}");
        for path in ["/upstream/real/v1/chat/completions", "/v1/chat/completions"] {
            let order = post(path, r#"{"model":"real"}"#)
                .replace("host: localhost", &format!("{line}host: localhost"));
            let (requested, _) = page(&stage, &order).await;
            assert!(!requested.to_ascii_lowercase().contains("accept-encoding"), "{path}: {requested}");
        }
    });
}
