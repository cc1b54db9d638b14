//! Tests of requests and answers that pass through the proxy unchanged.

use super::stub::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}";

#[test]
fn a_request_reaches_the_engine_with_its_own_bytes_and_the_answer_comes_back() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        let body = r#"{"model":"real", "x" : [1, 2]}"#;
        write(&mut client, &post("/v1/completions?a=b%20c", body)).await;
        let mut engine = stage.engine().await;
        let request = read_request(&mut engine).await;
        assert!(request.starts_with("POST /v1/completions?a=b%20c HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with(body), "{request}");
        write(&mut engine, OK).await;
        let answer = read_until(&mut client, "{}").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 2\r\n"), "{answer}");
        stage.until_idle().await;
    });
}

#[test]
fn an_alias_is_replaced_by_the_engines_own_name() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/completions", r#"{ "model" : "alias" }"#)).await;
        let mut engine = stage.engine().await;
        let request = read_request(&mut engine).await;
        assert!(request.ends_with(r#"{ "model" : "real" }"#), "{request}");
        assert!(request.contains("content-length: 20\r\n"), "{request}");
    });
}

#[test]
fn an_alias_in_a_form_is_replaced_too() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        let form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nalias\r\n--b--\r\n";
        let head = "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\n\
            content-type: multipart/form-data; boundary=b\r\ntransfer-encoding: chunked\r\n\r\n";
        write(&mut client, &format!("{head}{:x}\r\n{form}\r\n0\r\n\r\n", form.len())).await;
        let mut engine = stage.engine().await;
        let request = read_request(&mut engine).await;
        assert!(request.ends_with(&form.replace("alias", "real")), "{request}");
    });
}

#[test]
fn one_connection_to_the_engine_serves_many_requests() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/tokenize", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        for _ in 0..5 {
            read_request(&mut engine).await;
            write(&mut engine, OK).await;
            read_until(&mut client, "{}").await;
            write(&mut client, &post("/tokenize", r#"{"model":"real"}"#)).await;
        }
        read_request(&mut engine).await;
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        let one = post("/tokenize", r#"{"model":"real"}"#);
        write(&mut client, &format!("{one}{one}GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        let mut engine = stage.engine().await;
        for body in ["11", "22"] {
            read_request(&mut engine).await;
            write(&mut engine, &format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{body}")).await;
        }
        let answers = read_until(&mut client, "{\"status\":\"ok\"}").await;
        assert!(answers.find("\r\n\r\n11") < answers.find("\r\n\r\n22"), "{answers}");
    });
}

#[test]
fn events_pass_byte_for_byte_as_soon_as_they_are_whole() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/chat/completions", r#"{"model":"real","stream":true}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(
            &mut engine,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
            transfer-encoding: chunked\r\n\r\n",
        )
        .await;
        write(&mut engine, "9\r\ndata: 1\n\n\r\n").await;
        let mut answer = read_until(&mut client, "data: 1\n\n\r\n").await;
        assert!(answer.contains("X-Accel-Buffering: no\r\n"), "{answer}");
        write(&mut engine, "6\r\ndata: \r\n3\r\n2\n\n\r\n0\r\n\r\n").await;
        answer.push_str(&read_until(&mut client, "0\r\n\r\n").await);
        assert_eq!(unchunked(&answer).unwrap(), "data: 1\n\ndata: 2\n\n");
        stage.until_idle().await;
    });
}

#[test]
fn events_that_are_there_together_go_as_one_chunk_and_the_fault_behind_them_is_reported() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/chat/completions", r#"{"model":"real","stream":true}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let events: String = (0..5).map(|number| format!("data: {number}\n\n")).collect();
        let chunks: String = (0..5).map(|number| format!("9\r\ndata: {number}\n\n\r\n")).collect();
        // The engine ends in the middle of an event.
        write(&mut engine, &format!("{head}{chunks}4\r\ndata\r\n")).await;
        drop(engine);
        let answer = read_until(&mut client, "0\r\n\r\n").await;
        let reported = unchunked(&answer).unwrap();
        let (before, fault) = reported.split_at(events.len());
        assert_eq!(before, events);
        assert!(fault.starts_with("data: {\"error\"") && fault.contains("engine_died"), "{fault}");
        assert!(answer.contains(&format!("\r\n\r\n{:X}\r\n{events}\r\n", events.len())), "{answer}");
        stage.until_idle().await;
    });
}

#[test]
fn a_stream_that_ends_without_a_blank_line_keeps_its_last_bytes() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(
            &mut engine,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
            transfer-encoding: chunked\r\n\r\n7\r\ndata: 1\r\n0\r\n\r\n",
        )
        .await;
        let answer = read_until(&mut client, "0\r\n\r\n").await;
        assert_eq!(unchunked(&answer).unwrap(), "data: 1");
    });
}

#[test]
fn a_large_body_arrives_whole() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        let body = format!(r#"{{"prompt":"{}","model":"real"}}"#, "word ".repeat(400_000));
        let request = post("/v1/completions", &body);
        tokio::task::spawn_local(async move {
            write(&mut client, &request).await;
            read_until(&mut client, "{}").await;
        });
        let mut engine = stage.engine().await;
        let request = read_request(&mut engine).await;
        assert!(request.ends_with(&body));
        write(&mut engine, OK).await;
        stage.until_idle().await;
    });
}

#[test]
fn upstream_passes_path_and_query_as_they_are() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, "GET /upstream/user%2Freal:Q4/slots/?x=%31 HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        let mut engine = stage.engine().await;
        let request = read_request(&mut engine).await;
        assert!(request.starts_with("GET /slots/?x=%31 HTTP/1.1\r\n"), "{request}");
        write(&mut engine, OK).await;
        read_until(&mut client, "{}").await;
        write(&mut client, "GET /upstream/user/real:Q4 HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let request = read_request(&mut engine).await;
        assert!(request.starts_with("GET / HTTP/1.1\r\n"), "{request}");
    });
}

#[test]
fn the_engines_version_of_http_is_not_the_clients() {
    on_stage(|stage| async move {
        let mut client = stage.client().await;
        write(&mut client, &post("/v1/completions", r#"{"model":"real"}"#)).await;
        let mut engine = stage.engine().await;
        read_request(&mut engine).await;
        write(&mut engine, &OK.replace("HTTP/1.1", "HTTP/1.0")).await;
        let answer = read_until(&mut client, "{}").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        // The connection that was kept open speaks 1.1 to its end.
        write(&mut client, "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(read_until(&mut client, "}").await.starts_with("HTTP/1.1 200 "));
    });
}
