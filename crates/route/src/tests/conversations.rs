//! Tests of event streams that are resumed: the model of a conversation, clients that leave, stops.

use std::time::Duration;

use plimsoll_scheduler::ModelState;

use super::stub::*;
use crate::HttpSettings;

const ASK: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-conversation-id: talk::real\r\n\
    content-length: 16\r\n\r\n{\"model\":\"real\"}";

async fn ask(stage: &Stage, line: &str) -> String {
    let mut client = stage.client().await;
    write(&mut client, &format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await;
    read_to_close(&mut client).await
}

#[test]
fn a_stream_is_asked_of_the_model_that_its_conversation_names() {
    on_stage(|stage| async move {
        for (line, requested) in [
            ("GET /v1/stream?conv_id=a%3A%3Auser%2Freal%3AQ4&from=0", true),
            ("GET /v1/stream/a::real", true),
            ("DELETE /v1/stream?conv_id=a::real", true),
            ("GET /v1/stream?conv_id=a::zz", false),
            ("GET /v1/stream?conv_id=a", false),
            ("GET /v1/stream?conv_id=", false),
            ("GET /v1/stream", false),
        ] {
            let mut client = stage.client().await;
            write(&mut client, &format!("{line} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
            if requested {
                let mut engine = stage.engine().await;
                assert!(read_request(&mut engine).await.starts_with(line), "{line}");
            } else {
                assert!(read_until(&mut client, "}").await.starts_with("HTTP/1.1 40"), "{line}");
            }
        }
        stage.service.state.set(ModelState::Unloaded);
        assert!(ask(&stage, "GET /v1/stream?conv_id=a::real").await.starts_with("HTTP/1.1 404 "));
        assert!(ask(&stage, "DELETE /v1/stream?conv_id=a::real").await.starts_with("HTTP/1.1 204 "));
    });
}

#[test]
fn a_client_that_leaves_a_conversation_does_not_end_it() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, ASK).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        drop(client);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert_eq!(stage.service.in_flight.get(), 1, "the model stays busy");
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndata").await;
        stage.until_idle().await;
    });
}

#[test]
fn a_request_that_waits_for_its_model_is_cancelled_by_a_stop() {
    on_stage(|stage| async move {
        stage.service.state.set(ModelState::Loading);
        let mut client = stage.client().await;
        write(&mut client, ASK).await;
        // The stub admits at once, so the request waits for the engine's answer.
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        let waits = ask(&stage, "GET /v1/stream?conv_id=talk::real").await;
        assert!(waits.starts_with("HTTP/1.1 503 ") && waits.contains("Retry-After: 1"), "{waits}");
        assert!(ask(&stage, "DELETE /v1/stream?conv_id=talk::real").await.starts_with("HTTP/1.1 204 "));
        let answer = read_until(&mut client, "}").await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("cancelled"), "{answer}");
        stage.until_idle().await;
        assert!(ask(&stage, "GET /v1/stream?conv_id=talk::real").await.starts_with("HTTP/1.1 404 "));
    });
}

/// A request of the conversation with this name, whose body has so many bytes.
fn talk(id: usize, length: usize) -> String {
    let body = format!("{{\"model\":\"real\",\"x\":\"{}\"}}", "x".repeat(length));
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-conversation-id";
    format!("{head}: {id}::real\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Leaves conversations one after the other, as soon as each waits for the model.
async fn leave(stage: &Stage, count: usize, length: usize) {
    for id in 0..count {
        let before = stage.service.options.borrow().len();
        let mut client = stage.client().await;
        write(&mut client, &talk(id, length)).await;
        while stage.service.options.borrow().len() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(client);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn conversations_whose_clients_left_hold_places_like_connections_and_make_room() {
    let mut settings = HttpSettings::default();
    settings.limits.connections = 16;
    on_stage_with(settings, 0, |stage| async move {
        stage.service.is_full.send_replace(true);
        leave(&stage, 40, 10).await;
        assert_eq!(stage.service.waiting.get(), 16, "one client's share of the places");
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
        while stage.service.options.borrow().len() < 41 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(stage.service.waiting.get(), 16, "it took the place of one");
        stage.service.is_full.send_replace(false);
        for _ in 0..16 {
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        }
        read_until(&mut client, "{}").await;
        stage.until_idle().await;
    });
}

#[test]
fn bodies_of_conversations_whose_clients_left_make_room_for_others() {
    let mut settings = HttpSettings::default();
    settings.limits.bodies = plimsoll_base::Bytes::new(10_000);
    on_stage_with(settings, 0, |stage| async move {
        stage.service.is_full.send_replace(true);
        leave(&stage, 11, 1000).await;
        assert_eq!(stage.service.waiting.get(), 9);
        let mut client = stage.client().await;
        let body = format!("{{\"model\":\"zz\",\"x\":\"{}\"}}", "x".repeat(1000));
        write(&mut client, &post("/v1/completions", &body)).await;
        let answer = read_until(&mut client, "}").await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        // One that was dropped is no stream that will come.
        stage.service.state.set(ModelState::Loading);
        assert!(ask(&stage, "GET /v1/stream?conv_id=0::real").await.starts_with("HTTP/1.1 404 "));
        assert!(ask(&stage, "GET /v1/stream?conv_id=10::real").await.starts_with("HTTP/1.1 503 "));
    });
}

#[test]
fn streams_are_looked_up_where_they_are() {
    on_stage(|stage| async move {
        stage.service.is_only.set(true);
        let body = r#"{"conversation_ids":["a::real","b"]}"#;
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/streams/lookup", body)).await;
        let mut engine = stage.engine().await;
        let requested = read_request(&mut engine).await;
        assert!(requested.ends_with(r#"{"conversation_ids":["a::real","b"]}"#), "{requested}");
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n[{\"id\":\"a\"}]").await;
        assert!(read_until(&mut client, "]").await.ends_with("[{\"id\":\"a\"}]"));
        for body in ["", "7", "{}", r#"{"conversation_ids":7}"#, r#"{"conversation_ids":["a::real",7]}"#] {
            let mut client = stage.client().await;
            write(&mut client, &post("/v1/streams/lookup", body)).await;
            assert!(read_until(&mut client, "}}").await.starts_with("HTTP/1.1 400 "), "{body}");
        }
    });
}
