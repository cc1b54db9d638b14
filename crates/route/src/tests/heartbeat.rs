//! Tests of streams that wait: comments, the answer after them, and failures after the headers.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::net::TcpStream;

use super::stub::*;
use crate::{HttpProblem, HttpSettings};

const EVERY: Duration = Duration::from_millis(30);
const CHAT: &str = "/v1/chat/completions";
const STREAM: &str = r#"{"model":"real","stream":true}"#;
const COMMENT: &str = ": waiting for 3 GiB of memory on card 0\n\n";
const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn beating() -> HttpSettings {
    HttpSettings { heartbeat: Some(EVERY), ..HttpSettings::default() }
}

/// A client whose request waits and that has seen a comment, with all bytes that it has read.
async fn waiting(stage: &Stage, path: &str, body: &str) -> (TcpStream, String) {
    stage.service.is_full.send_replace(true);
    let mut client = stage.client().await;
    write(&mut client, &post(path, body)).await;
    let mut seen = String::new();
    while !seen.contains("\n\n\r\n") {
        seen += &read_some(&mut client).await;
    }
    (client, seen)
}

fn error_of(body: &str) -> Value {
    let (_, data) = body.rsplit_once("data: ").unwrap_or_else(|| panic!("{body}"));
    serde_json::from_str(data.trim_end()).unwrap()
}

#[test]
fn a_stream_that_waits_gets_its_headers_and_comments_and_then_the_engines_events() {
    on_stage_with(beating(), 0, |stage| async move {
        let (mut client, mut seen) = waiting(&stage, CHAT, STREAM).await;
        assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{seen}");
        let head = seen.split_once("\r\n\r\n").unwrap().0.to_ascii_lowercase();
        for line in ["content-type: text/event-stream", "x-accel-buffering: no"] {
            assert!(head.contains(line), "{head}");
        }
        while seen.matches(COMMENT).count() < 3 {
            seen += &read_some(&mut client).await;
        }
        stage.service.is_full.send_replace(false);
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, &format!("{EVENTS}9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n")).await;
        seen += &read_until(&mut client, "0\r\n\r\n").await;
        let body = unchunked(&seen).unwrap();
        let body = body.replace(": the engine is working on the request\n\n", "");
        assert_eq!(body.replace(COMMENT, ""), "data: 1\n\ndata: 2\n\n", "{body}");
        stage.until_idle().await;
        // The connection carries the next request.
        write(&mut client, &post("/v1/completions", "{}")).await;
        assert!(read_until(&mut client, "}").await.starts_with("HTTP/1.1 400 "));
    });
}

#[test]
fn a_refusal_after_the_headers_is_an_event_in_the_dialect_of_the_path() {
    for (path, comment, name) in [
        (CHAT, COMMENT, ""),
        ("/v1/responses", COMMENT, "event: error\n"),
        (
            "/v1/messages",
            ": waiting for 3 GiB of memory on card 0\nevent: ping\ndata: {\"type\": \"ping\"}\n\n",
            "event: error\n",
        ),
    ] {
        on_stage_with(beating(), 0, |stage| async move {
            let (mut client, mut seen) = waiting(&stage, path, STREAM).await;
            let problem = HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "no_room", "there is no room");
            stage.service.refusal.replace(Some(problem));
            stage.service.is_full.send_replace(false);
            seen += &read_until(&mut client, "0\r\n\r\n").await;
            let body = unchunked(&seen).unwrap();
            assert!(body.starts_with(comment), "{body}");
            assert!(body.contains(&format!("\n\n{name}data: {{")), "{body}");
            assert_eq!(error_of(&body)["error"]["code"], "no_room");
        });
    }
}

#[test]
fn an_engines_answer_that_is_no_stream_becomes_the_last_event() {
    let huge = format!(r#"{{"error":"{}"}}"#, "x".repeat(100_000));
    for (status, kind, body, code) in [
        ("400 Bad Request", "application/json", r#"{"error":{"code":"too_long","message":"m"}}"#, "too_long"),
        ("200 OK", "application/json", r#"{"choices":[]}"#, "no_event_stream"),
        ("200 OK", "application/json", r#"{"error":{"code":"too_long"}}"#, "no_event_stream"),
        ("502 Bad Gateway", "text/event-stream", "data: 1\n\n", "no_event_stream"),
        ("500 Oh", "text/html", "<html>", "no_event_stream"),
        ("500 Oh", "application/json", "[1,2", "no_event_stream"),
        ("500 Oh", "application/json", &huge, "no_event_stream"),
    ] {
        on_stage_with(beating(), 0, |stage| async move {
            let (mut client, mut seen) = waiting(&stage, CHAT, STREAM).await;
            stage.service.is_full.send_replace(false);
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            write(&mut engine, &(head + body)).await;
            seen += &read_until(&mut client, "0\r\n\r\n").await;
            let body = unchunked(&seen).unwrap();
            assert_eq!(error_of(&body)["error"]["code"], code, "{body}");
            stage.until_idle().await;
        });
    }
}

#[test]
fn an_engine_that_dies_after_the_headers_is_reported_in_an_event() {
    on_stage_with(beating(), 0, |stage| async move {
        let (mut client, mut seen) = waiting(&stage, CHAT, STREAM).await;
        stage.service.is_full.send_replace(false);
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, EVENTS).await;
        drop(engine);
        drop(stage.engine);
        seen += &read_until(&mut client, "0\r\n\r\n").await;
        assert_eq!(error_of(&unchunked(&seen).unwrap())["error"]["code"], "engine_died");
    });
}

#[test]
fn a_client_that_leaves_while_it_gets_comments_leaves_the_queue() {
    on_stage_with(beating(), 0, |stage| async move {
        let (client, _) = waiting(&stage, CHAT, STREAM).await;
        assert_eq!(stage.service.waiting.get(), 1);
        drop(client);
        while stage.service.waiting.get() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_client_that_reads_nothing_after_its_wait_is_given_up_as_soon_as_any_other() {
    on_stage_with(beating(), 0, |stage| async move {
        stage.service.stall_limit.set(Duration::from_millis(200));
        let (client, _) = waiting(&stage, CHAT, STREAM).await;
        stage.service.is_full.send_replace(false);
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, EVENTS).await;
        let event = format!("data: {}\n\n", "x".repeat(65_527));
        let piece = format!("{:x}\r\n{event}\r\n", event.len());
        // Until the engine's connection is closed, because the client was given up.
        while tokio::io::AsyncWriteExt::write_all(&mut engine, piece.as_bytes()).await.is_ok() {}
        stage.until_idle().await;
        drop(client);
    });
}

#[test]
fn requests_without_streaming_or_heartbeat_wait_for_their_status() {
    let off = post(CHAT, STREAM).replace("\r\n\r\n", "\r\nx-plimsoll-heartbeat: off\r\n\r\n");
    let requests = [
        off,
        post(CHAT, r#"{"model":"real","stream":false}"#),
        post(CHAT, r#"{"model":"real","stream":"true"}"#),
        post(CHAT, r#"{"model":"real","stream":1}"#),
        post(CHAT, r#"{"model":"real","stream":true,"stream":false}"#),
        post(CHAT, r#"{"model":"real","options":{"stream":true}}"#),
        post(CHAT, r#"{"model":"real","messages":"\"stream\":true"}"#),
        post(CHAT, r#"{"model":"real","stream":true"#),
        post("/v1/embeddings", STREAM),
        post("/v1/audio/speech", STREAM),
    ];
    for request in requests {
        on_stage_with(beating(), 0, |stage| async move {
            stage.service.is_full.send_replace(true);
            let mut client = stage.client().await;
            write(&mut client, &request).await;
            let early = tokio::time::timeout(EVERY * 4, read_some(&mut client)).await;
            assert!(early.is_err(), "{request}: {early:?}");
            let problem = HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "no_room", "there is no room");
            stage.service.refusal.replace(Some(problem));
            stage.service.is_full.send_replace(false);
            assert!(read_some(&mut client).await.starts_with("HTTP/1.1 503 "), "{request}");
        });
    }
}
