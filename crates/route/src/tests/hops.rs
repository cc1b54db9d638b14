//! Tests of large requests from other hosts, whose body streams to the engine while it arrives.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::stub::*;
use crate::limits::Limits;
use crate::server::HttpSettings;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// Head of a hop whose body has this length, and the body.
fn hop(length: usize) -> (String, String) {
    let body: String = (0..length).map(|at| char::from(b'a' + u8::try_from(at % 23).unwrap())).collect();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: h\r\nplimsoll-hop: 1\r\nplimsoll-model: real\r\n\
        content-length: {length}\r\n\r\n"
    );
    (head, body)
}

fn limits(change: impl FnOnce(&mut Limits)) -> HttpSettings {
    let mut limits = Limits::default();
    change(&mut limits);
    HttpSettings { limits, ..HttpSettings::default() }
}

#[test]
fn a_large_body_reaches_the_engine_while_it_arrives_and_unchanged() {
    on_stage(|stage| async move {
        stage.service.take_hops();
        let (mut peer, (head, body)) = (stage.client().await, hop(300_000));
        // Twice on one connection, so that its end is known.
        for _ in 0..2 {
            write(&mut peer, &head).await;
            write(&mut peer, &body[..200_000]).await;
            let mut engine = stage.engine().await;
            let mut request = String::new();
            while !request.ends_with(&body[..200_000]) {
                request.push_str(&read_some(&mut engine).await);
            }
            write(&mut peer, &body[200_000..]).await;
            while !request.ends_with(&body) {
                request.push_str(&read_some(&mut engine).await);
            }
            assert!(request.contains("content-length: 300000\r\n"), "{}", &request[..300]);
            write(&mut engine, OK).await;
            drop(engine);
            let answer = read_until(&mut peer, "{}").await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            stage.until_idle().await;
            // All memory is given back.
            assert!(stage.server.bodies.take_released() > 0);
        }
    });
}

#[test]
fn a_body_that_ends_early_ends_the_engines_request() {
    on_stage(|stage| async move {
        stage.service.take_hops();
        let (mut peer, (head, body)) = (stage.client().await, hop(100_000));
        write(&mut peer, &format!("{head}{}", &body[..50_000])).await;
        let mut engine = stage.engine().await;
        read_until(&mut engine, &body[..50_000]).await;
        drop(peer);
        assert_eq!(read_to_close(&mut engine).await, "");
        stage.until_idle().await;
    });
}

#[test]
fn a_body_that_stops_is_refused_and_is_not_to_be_sent_again() {
    let settings = limits(|limits| limits.body_time = Duration::from_millis(200));
    on_stage_with(settings, 0, |stage| async move {
        stage.service.take_hops();
        let (mut peer, (head, body)) = (stage.client().await, hop(100_000));
        write(&mut peer, &format!("{head}{}", &body[..50_000])).await;
        let answer = read_to_close(&mut peer).await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_too_slow"), "{answer}");
        assert!(!answer.to_lowercase().contains("plimsoll-declined"), "{answer}");
        stage.until_idle().await;
    });
}

#[test]
fn an_engine_that_ends_before_its_answer_lets_the_other_host_send_again() {
    on_stage(|stage| async move {
        stage.service.take_hops();
        let (mut peer, (head, body)) = (stage.client().await, hop(100_000));
        write(&mut peer, &format!("{head}{body}")).await;
        let mut engine = stage.engine().await;
        read_until(&mut engine, &body).await;
        drop(engine);
        let answer = read_until(&mut peer, "}").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("engine_lost"), "{answer}");
        assert!(answer.to_lowercase().contains("plimsoll-declined: 1\r\n"), "{answer}");
        stage.until_idle().await;
        // The same where the engine cannot be reached.
        let mut peer = stage.client().await;
        drop(stage.engine);
        write(&mut peer, &format!("{head}{body}")).await;
        let answer = read_until(&mut peer, "}").await;
        assert!(answer.contains("engine_lost"), "{answer}");
    });
}

#[test]
fn an_answer_before_the_end_of_the_body_reaches_the_other_host() {
    on_stage(|stage| async move {
        stage.service.take_hops();
        let (mut peer, (head, body)) = (stage.client().await, hop(100_000));
        write(&mut peer, &format!("{head}{}", &body[..40_000])).await;
        let mut engine = stage.engine().await;
        read_until(&mut engine, &body[..40_000]).await;
        write(&mut engine, "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno").await;
        let answer = read_until(&mut peer, "no").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        stage.until_idle().await;
    });
}

#[test]
fn a_body_beyond_the_limits_reaches_no_engine_before_it_is_whole() {
    let settings = limits(|limits| {
        limits.body = plimsoll_base::Bytes::new(200_000);
        limits.bodies = plimsoll_base::Bytes::new(60_000);
    });
    on_stage_with(settings, 0, |stage| async move {
        stage.service.take_hops();
        for (length, refusal) in [(200_001, "body_too_large"), (100_000, "bodies_too_large")] {
            let (mut peer, (head, body)) = (stage.client().await, hop(length));
            write(&mut peer, &head).await;
            // The host may close before all is written.
            let _ = peer.write_all(body.as_bytes()).await;
            let answer = read_until(&mut peer, "}").await;
            assert!(answer.contains(refusal), "{answer}");
        }
        assert!(stage.service.options.borrow().is_empty(), "no engine was asked for");
    });
}

#[test]
fn a_model_that_is_not_ready_gets_the_whole_body() {
    on_stage(|stage| async move {
        stage.service.take_hops();
        stage.service.is_full.send_replace(true);
        let (mut peer, (head, body)) = (stage.client().await, hop(100_000));
        write(&mut peer, &format!("{head}{body}")).await;
        while stage.service.waiting.get() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stage.service.is_full.send_replace(false);
        let mut engine = stage.engine().await;
        read_until(&mut engine, &body).await;
        drop(engine);
        // It is kept, and sent again from here.
        let mut engine = stage.engine().await;
        read_until(&mut engine, &body).await;
        write(&mut engine, OK).await;
        read_until(&mut peer, "{}").await;
    });
}
