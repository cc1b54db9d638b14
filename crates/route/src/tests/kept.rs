//! Tests of persistent connections to an engine: the next request on one gets its own answer, whatever came
//! before.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::stub::*;

/// Takes what follows a head for the next request, and answers each with its path; a path with `missing` is
/// not found.
async fn answer_heads(mut engine: TcpStream) {
    let mut text = String::new();
    loop {
        while let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            text = rest.to_owned();
            let status = if path.contains("missing") { "404 Not Found" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{path}", path.len());
            if engine.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        match read_some(&mut engine).await {
            piece if piece.is_empty() => return,
            piece => text.push_str(&piece),
        }
    }
}

async fn answer_all_heads(engine: TcpListener) {
    while let Ok((stream, _)) = engine.accept().await {
        spawn_local(answer_heads(stream));
    }
}

#[test]
fn an_engine_that_reads_no_body_gives_no_client_anothers_answer() {
    on_stage(|stage| async move {
        let (address, _running) = (stage.address, stage.running);
        spawn_local(answer_all_heads(stage.engine));
        let hidden = "GET /v1/attack HTTP/1.1\r\nhost: localhost\r\n\r\n";
        // More than the sockets take while the engine reads nothing.
        let large = hidden.to_owned() + &"x".repeat(12 << 20);
        for (line, body) in [
            ("GET /v1/any?model=real", hidden),
            ("DELETE /v1/any?model=real", hidden),
            ("POST /v1/missing?model=real", hidden),
            ("POST /v1/missing?model=real", large.as_str()),
        ] {
            let mut attacker = TcpStream::connect(address).await.unwrap();
            let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}", body.len());
            write(&mut attacker, &format!("{head}\r\n\r\n{body}")).await;
            let path = line.split(' ').nth(1).unwrap();
            read_until(&mut attacker, path).await;
            // The engine has answered the hidden request as well by then.
            tokio::time::sleep(Duration::from_millis(50)).await;
            for at in 0..3 {
                let mut honest = TcpStream::connect(address).await.unwrap();
                let mine = format!("/v1/mine{at}?model=real");
                write(&mut honest, &format!("GET {mine} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
                let answer = read_until(&mut honest, "?model=real").await;
                assert!(answer.ends_with(&mine), "after {line}: {answer}");
            }
        }
    });
}

#[test]
fn a_success_before_the_end_of_the_body_closes_the_connection() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        let body = format!("{{\"model\":\"real\",\"x\":\"{}\"}}", "x".repeat(12 << 20));
        write(&mut client, &post("/v1/completions", &body)).await;
        let mut engine = stage.engine().await;
        let first = read_some(&mut engine).await;
        assert!(first.starts_with("POST "));
        write(&mut engine, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        read_until(&mut client, "{}").await;
        let rest = read_to_close(&mut engine).await;
        assert!(first.len() + rest.len() < body.len(), "not all of it was sent");
    });
}

#[test]
fn an_engine_that_sends_interim_responses_without_end_is_given_up() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/tokenize", r#"{"model":"real"}"#)).await;
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(100);
        let flood = async {
            loop {
                let mut engine = stage.engine().await;
                let mut taken = 0;
                while engine.write_all(interim.as_bytes()).await.is_ok() {
                    taken += interim.len();
                    tokio::task::yield_now().await;
                }
                // The buffers of the two sockets come on top.
                assert!(taken < 32 << 20, "{taken} bytes");
            }
        };
        tokio::select! {
            () = flood => {}
            answer = read_until(&mut client, "}") => assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}"),
        }
        stage.until_idle().await;
    });
}

#[test]
fn an_answer_after_some_interim_responses_is_the_answer() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        for _ in 0..2 {
            write(&mut client, &post("/tokenize", r#"{"model":"real"}"#)).await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            for piece in
                ["HTTP/1", ".1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\n"]
            {
                write(&mut engine, piece).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let body = "x".repeat(1 << 20);
            write(&mut engine, &format!("content-length: {}\r\n\r\n{body}", body.len() + 1)).await;
            write(&mut engine, "}").await;
            let answer = read_until(&mut client, "}").await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.len() > body.len());
        }
    });
}
