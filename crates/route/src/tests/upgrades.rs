//! Tests of upgraded connections (websockets) between a client and an engine.

use std::time::Duration;

use super::stub::*;

const ASK: &str = "GET /upstream/real/ws?a=b HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, Upgrade\r\n\
    upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[test]
fn bytes_pass_in_both_directions_until_one_side_closes() {
    on_stage(|stage| async move {
        for engine_closes in [true, false] {
            let mut client = stage.client().await;
            write(&mut client, ASK).await;
            let mut engine = stage.engine().await;
            let requested = read_request(&mut engine).await;
            assert!(requested.starts_with("GET /ws?a=b "), "{requested}");
            for line in [
                "upgrade: websocket\r\n",
                "connection: upgrade\r\n",
                "sec-websocket-key: dghlihnhbxbszsbub25jzq==\r\n",
            ] {
                assert!(requested.to_ascii_lowercase().contains(line), "{requested}");
            }
            // Bytes right behind the answer belong to the new protocol.
            write(&mut engine, &format!("{AGREE}hello")).await;
            let agreed = read_until(&mut client, "hello").await;
            assert!(
                agreed.starts_with("HTTP/1.1 101 ") && agreed.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
                "{agreed}"
            );
            assert!(agreed.to_ascii_lowercase().contains("upgrade: websocket\r\n"), "{agreed}");
            write(&mut client, "ping").await;
            assert_eq!(read_until(&mut engine, "ping").await, "ping");
            write(&mut engine, "pong").await;
            assert_eq!(read_until(&mut client, "pong").await, "pong");
            assert_eq!(stage.service.in_flight.get(), 1, "the model is busy");
            let (mut other, one) = if engine_closes { (client, engine) } else { (engine, client) };
            drop(one);
            assert_eq!(read_some(&mut other).await, "");
            stage.until_idle().await;
        }
    });
}

#[test]
fn the_realtime_path_is_upgraded_and_the_model_stands_in_the_query() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &ASK.replace("/upstream/real/ws?a=b", "/v1/realtime?model=alias")).await;
        let mut engine = stage.engine().await;
        assert!(read_request(&mut engine).await.starts_with("GET /v1/realtime?model=alias "));
        write(&mut engine, AGREE).await;
        read_until(&mut client, "\r\n\r\n").await;
        write(&mut client, "x").await;
        assert_eq!(read_some(&mut engine).await, "x");
    });
}

#[test]
fn an_engine_that_does_not_agree_is_heard() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, ASK).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").await;
        assert!(read_until(&mut client, "no").await.starts_with("HTTP/1.1 404 "));
    });
}

#[test]
fn an_upgrade_that_was_not_asked_for_is_refused() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/upstream/real/x", "{}")).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, &format!("{AGREE}smuggled")).await;
        let answer = read_until(&mut client, "}").await;
        assert!(answer.starts_with("HTTP/1.1 50") && !answer.contains("smuggled"), "{answer}");
        stage.until_idle().await;
    });
}

#[test]
fn a_foreign_page_opens_no_websocket_on_any_path() {
    on_stage(|stage| async move {
        stage.service.is_only.set(true);
        let paths =
            ["/upstream/real/ws?a=b", "/v1/realtime?model=real", "/v1/stream?conv_id=a::real", "/props"];
        for origin in ["https://evil.example", "http://localhost:3000", "null"] {
            for path in paths {
                let mut client = stage.client().await;
                let from = format!("host: localhost\r\norigin: {origin}");
                write(
                    &mut client,
                    &ASK.replace("/upstream/real/ws?a=b", path).replace("host: localhost", &from),
                )
                .await;
                let answer = read_until(&mut client, "}").await;
                assert!(answer.starts_with("HTTP/1.1 403 "), "{origin} {path}: {answer}");
            }
        }
        assert!(stage.service.options.borrow().is_empty());
    });
}

#[test]
fn no_other_protocol_is_spoken_with_an_engine() {
    on_stage(|stage| async move {
        for (from, to) in [
            ("upgrade: websocket", "upgrade: h2c\r\nhttp2-settings: AAMAAABk"),
            ("upgrade: websocket", "upgrade: websocket, h2c"),
            ("sec-websocket-version: 13\r\n", ""),
        ] {
            let mut client = stage.client().await;
            write(&mut client, &ASK.replace(from, to)).await;
            let mut engine = stage.engine().await;
            let requested = read_request(&mut engine).await.to_ascii_lowercase();
            assert!(!requested.contains("upgrade:") && !requested.contains("connection:"), "{requested}");
            // An engine that changes all the same is not joined.
            write(&mut engine, &format!("{}smuggled", AGREE.replace("websocket", "h2c"))).await;
            let answer = read_until(&mut client, "}").await;
            assert!(answer.starts_with("HTTP/1.1 502 ") && !answer.contains("smuggled"), "{answer}");
            stage.until_idle().await;
        }
        let mut client = stage.client().await;
        write(&mut client, ASK).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, &AGREE.replace("websocket", "h2c")).await;
        assert!(read_until(&mut client, "}").await.starts_with("HTTP/1.1 502 "));
    });
}

#[test]
fn an_open_websocket_does_not_keep_the_server_from_ending() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, ASK).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, AGREE).await;
        read_until(&mut client, "\r\n\r\n").await;
        stage.server.end_feeds();
        assert_eq!(read_some(&mut client).await, "");
        tokio::time::timeout(Duration::from_secs(2), stage.until_idle()).await.unwrap();
    });
}
