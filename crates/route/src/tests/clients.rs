//! Tests of refused HTTP requests and of the limits on clients.

use std::time::Duration;

use plimsoll_base::Bytes;

use super::stub::*;
use crate::{HttpSettings, Limits, Origins};

fn limited(change: impl FnOnce(&mut Limits)) -> HttpSettings {
    let mut settings = HttpSettings::default();
    change(&mut settings.limits);
    settings
}

async fn ask(stage: &Stage, request: &str) -> String {
    let mut client = stage.client().await;
    write(&mut client, request).await;
    read_until(&mut client, "}").await
}

#[test]
fn a_request_that_names_no_known_model_is_shown_which_there_are() {
    on_stage(|stage| async move {
        for (request, status, message) in [
            (post("/v1/completions", "{}"), "400", "model name is missing from the request"),
            (post("/v1/completions", r#"{"model":""}"#), "400", "model name is missing from the request"),
            (post("/v1/completions", r#"{"model":"zz"}"#), "404", "model 'zz' not found"),
            (post("/upstream/zz/x", ""), "404", "model 'zz/x' not found"),
        ] {
            let answer = ask(&stage, &request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(
                answer.contains(message) && answer.contains("name one of these models: real"),
                "{answer}"
            );
        }
    });
}

#[test]
fn the_model_and_autoload_may_stand_in_the_query() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(
            &mut client,
            "GET /slots?model=user%2Freal%3AQ4&autoload=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        )
        .await;
        let mut engine = stage.engine().await;
        assert!(read_request(&mut engine).await.starts_with("GET /slots?model="));
        assert_eq!(
            stage.service.options.borrow().iter().map(|options| options.autoload).collect::<Vec<_>>(),
            [Some(false)]
        );
    });
}

#[test]
fn without_a_key_only_health_is_answered() {
    let settings = HttpSettings { keys: secret_key(), ..HttpSettings::default() };
    on_stage_with(settings, 0, |stage| async move {
        let refused = ask(&stage, &post("/v1/completions", r#"{"model":"zz"}"#)).await;
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        assert!(refused.contains("Www-Authenticate: Bearer"), "{refused}");
        let health = ask(&stage, "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
        let known = "GET /slots HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret\r\n\r\n";
        assert!(ask(&stage, known).await.starts_with("HTTP/1.1 400 "));
    });
}

#[test]
fn a_page_of_another_origin_is_refused_and_an_allowed_one_is_granted() {
    let origins = Origins::These(vec!["http://localhost:3000".to_owned()]);
    on_stage_with(HttpSettings { origins, ..HttpSettings::default() }, 0, |stage| async move {
        let from = |origin| {
            format!(
                "POST /tokenize HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\ncontent-length: 0\r\n\r\n"
            )
        };
        for origin in ["https://evil.example", "http://localhost:3001", "http://127.0.0.1:3000", "null"] {
            let foreign = ask(&stage, &from(origin)).await;
            assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
            assert!(!foreign.contains("Access-Control-Allow-Origin"), "{foreign}");
            // Requests that change nothing are not read either.
            let read = from(origin).replace("POST /tokenize", "GET /v1/models");
            assert!(ask(&stage, &read).await.starts_with("HTTP/1.1 403 "), "{origin}");
        }
        let local = ask(&stage, &from("http://localhost:3000")).await;
        assert!(local.contains("Access-Control-Allow-Origin: http://localhost:3000\r\n"), "{local}");
        let mut client = stage.client().await;
        write(
            &mut client,
            "OPTIONS /v1/completions HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n\r\n",
        )
        .await;
        let preflight = read_until(&mut client, "\r\n\r\n").await;
        assert!(preflight.starts_with("HTTP/1.1 200 ") && preflight.contains("Access-Control-Allow-Methods"));
    });
}

#[test]
fn a_body_beyond_the_limit_is_refused_by_its_length_or_by_its_bytes() {
    let settings = limited(|limits| limits.body = Bytes::new(10));
    on_stage_with(settings, 0, |stage| async move {
        let reported = ask(&stage, &post("/v1/completions", "01234567890")).await;
        assert!(reported.starts_with("HTTP/1.1 413 "), "{reported}");
        let chunked = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n\
            6\r\n012345\r\n6\r\n012345\r\n";
        assert!(ask(&stage, chunked).await.starts_with("HTTP/1.1 413 "));
    });
}

#[test]
fn a_slow_head_and_a_slow_body_are_cut_off_without_touching_an_engine() {
    let settings = limited(|limits| {
        limits.head_time = Duration::from_millis(50);
        limits.body_time = Duration::from_millis(50);
    });
    on_stage_with(settings, 0, |stage| async move {
        let mut client = stage.client().await;
        write(&mut client, "POST /v1/completions HTTP/1.1\r\nhos").await;
        let answer = read_to_close(&mut client).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
        let slow = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{\"model\":\"real\"";
        assert!(ask(&stage, slow).await.starts_with("HTTP/1.1 408 "));
        assert!(stage.service.options.borrow().is_empty(), "no engine was asked for");
    });
}

#[test]
fn a_head_beyond_the_limits_is_refused() {
    let settings = limited(|limits| {
        limits.head = Bytes::kib(8);
        limits.headers = 10;
    });
    on_stage_with(settings, 0, |stage| async move {
        for lines in [format!("x: {}\r\n", "y".repeat(9000)), "x: y\r\n".repeat(11)] {
            let mut client = stage.client().await;
            write(&mut client, &format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n")).await;
            let answer = read_to_close(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        }
    });
}

#[test]
fn expect_continue_is_answered_before_the_body_and_old_clients_are_served() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(
            &mut client,
            "POST /tokenize HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 14\r\n\r\n",
        )
        .await;
        assert_eq!(read_until(&mut client, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
        write(&mut client, r#"{"model":"zz"}"#).await;
        assert!(read_until(&mut client, "}").await.starts_with("HTTP/1.1 404 "));
        let mut old = stage.client().await;
        write(&mut old, "GET /health HTTP/1.0\r\n\r\n").await;
        assert!(read_to_close(&mut old).await.ends_with("{\"status\":\"ok\"}"));
        let mut head = stage.client().await;
        write(&mut head, "HEAD /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        assert!(read_to_close(&mut head).await.ends_with("\r\n\r\n"));
    });
}

#[test]
fn a_path_or_method_that_is_not_served_is_refused_as_such() {
    on_stage(|stage| async move {
        let nowhere = ask(&stage, "GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(nowhere.starts_with("HTTP/1.1 404 ") && nowhere.contains("no such path: /nowhere"));
        let wrong = ask(&stage, "GET /tokenize HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(wrong.starts_with("HTTP/1.1 405 ") && wrong.contains("Allow: POST\r\n"), "{wrong}");
    });
}

#[test]
fn a_client_that_leaves_with_a_byte_of_its_next_request_unread_is_noticed() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        let request = post("/v1/completions", r#"{"model":"real"}"#);
        write(&mut client, &format!("{request}G")).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        drop(client);
        // The engine learns of it by its connection, and the pass is given back.
        assert_eq!(read_some(&mut engine).await, "");
        stage.until_idle().await;
    });
}

#[test]
fn a_client_that_pipelines_and_stays_is_answered_in_order() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        let request = post("/v1/completions", r#"{"model":"real"}"#);
        let health = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
        write(&mut client, &format!("{request}{health}")).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        // Longer than the interval at which the connection is looked at.
        tokio::time::sleep(Duration::from_millis(1200)).await;
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        let answers = read_until(&mut client, "\"ok\"}").await;
        assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
    });
}

#[test]
fn no_browser_may_guess_the_type_of_a_text_or_embed_it() {
    on_stage(|stage| async move {
        for path in ["/logs", "/health", "/metrics", "/nowhere", "/api/status", "/running"] {
            let mut client = stage.client().await;
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            write(&mut client, &request).await;
            let answer = read_to_close(&mut client).await;
            for header in ["X-Content-Type-Options: nosniff", "Cross-Origin-Resource-Policy: same-origin"] {
                assert!(answer.contains(header), "{path}: {answer}");
            }
        }
    });
}
