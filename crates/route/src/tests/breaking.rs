//! Tests of the HTTP proxy's answers when an engine or a connection ends early.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::stub::*;
use crate::HttpSettings;

const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

#[test]
fn a_client_that_leaves_while_waiting_cancels_the_engines_work() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        assert_eq!(stage.service.in_flight.get(), 1);
        drop(client);
        assert_eq!(read_some(&mut engine).await, "", "the engine's connection is closed");
        stage.until_idle().await;
    });
}

#[test]
fn a_client_that_leaves_in_mid_stream_cancels_the_engines_work() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, &format!("{STREAM}9\r\ndata: 1\n\n\r\n")).await;
        read_until(&mut client, "data: 1\n\n\r\n").await;
        drop(client);
        assert_eq!(read_some(&mut engine).await, "", "the engine's connection is closed");
        stage.until_idle().await;
    });
}

#[test]
fn a_death_at_any_byte_of_a_stream_ends_in_a_well_formed_error_event() {
    on_stage(|stage| async move {
        let events = "data: {\"a\":1}\r\n\r\n: note\n\nevent: x\rdata: 2\r\rdata: [DONE]\n\n";
        for cut in 1..=events.len() {
            let mut client = stage.client().await;
            write(&mut client, &post("/v1/chat/completions", r#"{"model":"real"}"#)).await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            write(&mut engine, &format!("{STREAM}{cut:x}\r\n{}\r\n", &events[..cut])).await;
            drop(engine);
            let answer = read_until(&mut client, "0\r\n\r\n").await;
            let body = unchunked(&answer).unwrap();
            let (passed, error) = body.split_at(body.find("data: {\"error\"").unwrap());
            assert!(events[..cut].starts_with(passed), "{cut}: {passed:?}");
            let blank = ["\n\n", "\r\n\r\n", "\r\r"];
            assert!(passed.is_empty() || blank.iter().any(|end| passed.ends_with(end)), "{cut}: {passed:?}");
            let json = error.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(json["error"]["message"], "real died in mid-answer");
            stage.until_idle().await;
        }
    });
}

#[test]
fn the_error_event_of_messages_has_a_name() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/messages", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, &format!("{STREAM}9\r\ndata: 1\n\n\r\n")).await;
        drop(engine);
        let body = unchunked(&read_until(&mut client, "0\r\n\r\n").await).unwrap();
        assert!(body.contains("\n\nevent: error\ndata: {"), "{body}");
        assert!(body.contains("\"type\":\"error\""), "{body}");
    });
}

#[test]
fn a_broken_answer_that_is_no_stream_of_events_breaks_the_connection() {
    for head in ["content-length: 9\r\n\r\n{\"a\"", "transfer-encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n"] {
        on_stage(|stage| async move {
            let mut client = stage.client().await;
            write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            write(&mut engine, &format!("HTTP/1.1 200 OK\r\n{head}")).await;
            drop(engine);
            let answer = read_to_close(&mut client).await;
            assert!(!answer.ends_with("0\r\n\r\n") && !answer.ends_with('}'), "{answer}");
            stage.until_idle().await;
        });
    }
}

#[test]
fn a_death_before_the_first_byte_is_reported_as_a_refusal() {
    for begun in ["", "HTTP/1.1 200 OK\r\n", STREAM] {
        on_stage(|stage| async move {
            let mut client = stage.client().await;
            write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
            // One that has not answered is asked on a second connection before it is given up.
            for _ in 0..if begun == STREAM { 1 } else { 2 } {
                let mut engine = stage.engine().await;
                read_request(&mut engine).await;
                write(&mut engine, begun).await;
            }
            let answer = read_until(&mut client, "}}").await;
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("\"code\":\"engine_died\""), "{answer}");
            stage.until_idle().await;
        });
    }
}

#[test]
fn a_death_before_the_first_byte_is_tried_again_where_the_owner_says_so() {
    on_stage_with(HttpSettings::default(), 1, |stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        let first = read_request(&mut engine).await;
        // The second connection is lost too; the third one is to the engine that the owner gives.
        for _ in 0..2 {
            drop(engine);
            engine = stage.engine().await;
            assert_eq!(read_request(&mut engine).await, first);
        }
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        read_until(&mut client, "ok").await;
    });
}

#[test]
fn a_connection_that_grew_stale_is_replaced_unseen() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        let request = post("/v1/completions", r#"{"model":"real"}"#);
        for closes_first in [true, false] {
            write(&mut client, &request).await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            read_until(&mut client, "ok").await;
            if closes_first {
                drop(engine);
            } else {
                // Closes only when the next request is on its way.
                write(&mut client, &request).await;
                read_request(&mut engine).await;
                engine.shutdown().await.unwrap();
                drop(engine);
                let mut engine = stage.engine().await;
                read_request(&mut engine).await;
                write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                read_until(&mut client, "ok").await;
            }
        }
        stage.until_idle().await;
    });
}

#[test]
fn a_shutdown_lets_what_is_in_flight_finish_and_takes_nothing_new() {
    on_stage(|stage| async move {
        let mut idle = stage.client().await;
        write(&mut idle, "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        read_until(&mut idle, "}").await;
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        let Stage { address, running, .. } = stage;
        drop(running);
        assert_eq!(read_some(&mut idle).await, "", "an idle connection is closed at once");
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        let answer = read_to_close(&mut client).await;
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    });
}
