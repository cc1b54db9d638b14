//! Tests of HTTP clients that occupy shared resources: connections, memory for request bodies, unread
//! answers.

use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use tokio::net::TcpStream;

use super::stub::*;
use crate::{HttpSettings, Limits};

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
const UNFINISHED: &str =
    "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{\"model\":\"";

fn limited(change: impl FnOnce(&mut Limits)) -> HttpSettings {
    let mut settings = HttpSettings::default();
    change(&mut settings.limits);
    settings
}

async fn opened(stage: &Stage, text: &str) -> TcpStream {
    let mut client = stage.client().await;
    write(&mut client, text).await;
    client
}

#[test]
fn the_longest_idle_connection_makes_room_for_a_newcomer() {
    let settings = limited(|limits| limits.connections = 4);
    on_stage_with(settings, 0, |stage| async move {
        let mut first = opened(&stage, HEALTH).await;
        read_until(&mut first, "}").await;
        let mut second = opened(&stage, HEALTH).await;
        read_until(&mut second, "}").await;
        let mut third = opened(&stage, HEALTH).await;
        read_until(&mut third, "}").await;
        assert_eq!(read_some(&mut first).await, "", "it was closed");
        write(&mut second, HEALTH).await;
        read_until(&mut second, "}").await;
    });
}

#[test]
fn one_more_connection_of_a_client_waits_for_one_of_its_own() {
    let settings = limited(|limits| limits.connections = 2);
    on_stage_with(settings, 0, |stage| async move {
        let ask = post("/tokenize", r#"{"model":"real"}"#);
        let (mut first, _second) = (opened(&stage, &ask).await, opened(&stage, &ask).await);
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        let _other = stage.engine().await;
        // Public paths are answered all the same.
        let mut third = opened(&stage, HEALTH).await;
        read_until(&mut third, "}").await;
        write(&mut third, &ask).await;
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await;
        read_until(&mut first, "ok").await;
        // The first is idle now, and makes room.
        let mut engine = stage.engine().await;
        assert!(read_request(&mut engine).await.starts_with("POST /tokenize"));
        assert_eq!(read_some(&mut first).await, "", "it was closed");
    });
}

#[test]
fn authenticated_clients_are_served_and_kept_during_a_flood() {
    let mut settings = limited(|limits| limits.connections = 16);
    settings.keys = secret_key();
    on_stage_with(settings, 0, |stage| async move {
        let known = "GET /running HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n\r\n";
        let mut flood = Vec::new();
        for _ in 0..6 {
            for _ in 0..20 {
                flood.push(opened(&stage, HEALTH).await);
            }
            // No one of them is idle for long.
            for one in &mut flood {
                let _ = tokio::io::AsyncWriteExt::write_all(one, HEALTH.as_bytes()).await;
            }
            let mut client = opened(&stage, known).await;
            let answered = tokio::time::timeout(Duration::from_secs(1), read_until(&mut client, "}")).await;
            assert!(answered.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")));
            flood.push(client);
        }
        // Clients with a key stay, however many come without.
        for client in flood.iter_mut().skip(20).step_by(21) {
            write(client, known).await;
            assert!(read_until(client, "}").await.starts_with("HTTP/1.1 200 "));
        }
    });
}

#[test]
fn peers_without_a_key_leave_half_of_the_places_and_are_cut_off_sooner() {
    let mut settings = limited(|limits| {
        limits.connections = 4;
        limits.keyless_time = Duration::from_millis(3000);
    });
    settings.keys = secret_key();
    on_stage_with(settings, 0, |stage| async move {
        let known = "GET /running HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n\r\n";
        let mut known = opened(&stage, known).await;
        read_until(&mut known, "}").await;
        let mut silent = Vec::new();
        for _ in 0..6 {
            silent.push(stage.client().await);
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        for old in &mut silent[..2] {
            let closed = tokio::time::timeout(Duration::from_millis(100), read_some(old)).await;
            assert_eq!(closed.as_deref(), Ok(""), "the oldest made room");
        }
        let since = Instant::now();
        assert_eq!(read_some(&mut silent[5]).await, "");
        assert!(since.elapsed() < Duration::from_secs(5));
        write(&mut known, "GET /running HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n\r\n").await;
        read_until(&mut known, "}").await;
    });
}

#[test]
fn an_unfinished_body_makes_room_for_the_newcomers_and_what_ended_is_given_back() {
    let settings = limited(|limits| limits.bodies = Bytes::new(25));
    on_stage_with(settings, 0, |stage| async move {
        let mut slow = opened(&stage, UNFINISHED).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        for _ in 0..3 {
            let mut small = opened(&stage, &post("/tokenize", r#"{"model":"zz"}  "#)).await;
            assert!(read_until(&mut small, "}").await.starts_with("HTTP/1.1 404 "));
        }
        let dropped = read_until(&mut slow, "}").await;
        assert!(dropped.starts_with("HTTP/1.1 503 ") && dropped.contains("Retry-After: 1\r\n"), "{dropped}");
        let mut large = opened(&stage, &post("/tokenize", r#"{"model":"zz"}                     "#)).await;
        assert!(read_until(&mut large, "}").await.starts_with("HTTP/1.1 503 "), "alone it is too large");
    });
}

#[test]
fn a_small_body_is_served_beside_more_unfinished_ones_than_there_are_connections() {
    let settings = limited(|limits| {
        limits.connections = 4;
        limits.body_time = Duration::from_secs(1);
        limits.body_rate = Bytes::new(1);
    });
    on_stage_with(settings, 0, |stage| async move {
        let mut unfinished = Vec::new();
        for _ in 0..20 {
            unfinished.push(opened(&stage, UNFINISHED).await);
        }
        // Refused until the first of them has had its time, which a new one then ends.
        loop {
            let mut small = opened(&stage, &post("/tokenize", r#"{"model":"zz"}"#)).await;
            let answer = read_until(&mut small, "}").await;
            if answer.starts_with("HTTP/1.1 404 ") {
                break;
            }
            assert!(answer.contains("too_many_connections"), "{answer}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
fn an_answer_that_nobody_reads_gives_its_model_back() {
    on_stage(|stage| async move {
        stage.service.stall_limit.set(Duration::from_secs(60));
        let stalled = opened(&stage, &post("/tokenize", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n").await;
        // More than the buffers of the two connections take.
        let flood = async {
            let piece = "x".repeat(1 << 20);
            while tokio::io::AsyncWriteExt::write_all(&mut engine, piece.as_bytes()).await.is_ok() {}
        };
        let stays = tokio::time::timeout(Duration::from_secs(2), flood).await;
        assert!(stays.is_err() && stage.service.in_flight.get() == 1, "it waits for its client");
        // Another request wants the memory: what is under way is judged by the new limit.
        stage.service.stall_limit.set(Duration::from_millis(500));
        tokio::time::timeout(Duration::from_secs(5), stage.until_idle()).await.unwrap();
        drop(stalled);
    });
}

#[test]
fn an_order_to_the_server_itself_is_short() {
    on_stage(|stage| async move {
        let long = format!("{{\"conversation_ids\":[{}0]}}", "0,".repeat(600_000));
        for path in ["/v1/streams/lookup", "/api/show", "/models"] {
            let mut client = stage.client().await;
            // The server may close before all is written.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut client, post(path, &long).as_bytes()).await;
            let answer = read_until(&mut client, "}").await;
            assert!(answer.starts_with("HTTP/1.1 413 "), "{path}: {answer}");
        }
    });
}

#[test]
fn a_client_that_reads_slowly_keeps_its_answer() {
    on_stage(|stage| async move {
        stage.service.stall_limit.set(Duration::from_millis(1500));
        let mut slow = opened(&stage, &post("/tokenize", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 20000000\r\n\r\n{}", "x".repeat(20_000_000));
        let write = tokio::task::spawn_local(async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut engine, answer.as_bytes()).await;
        });
        for _ in 0..40 {
            assert!(!read_some(&mut slow).await.is_empty());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        write.abort();
    });
}
