//! Tests of Ollama's and LM Studio's API between a client socket and a scripted engine.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_scheduler::ModelState;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::stub::*;
use crate::HttpSettings;

const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chat(more: &Value) -> Value {
    let mut chat = json!({"model": "real:latest", "messages": [{"role": "user", "content": "hi"}]});
    chat.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chat
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn whole(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends `body` and answers with `script` for the engine; returns the engine's request and the client's
/// answer.
async fn exchange(stage: &Stage, path: &str, body: &Value, script: &str) -> (Value, String) {
    let mut client = stage.client().await;
    let request = post(path, &body.to_string()).replace("host:", "connection: close\r\nhost:");
    write(&mut client, &request).await;
    let mut engine: TcpStream = stage.engine().await;
    let requested = read_request(&mut engine).await;
    write(&mut engine, script).await;
    drop(engine);
    let (_, requested) = requested.split_once("\r\n\r\n").unwrap();
    (serde_json::from_str(requested).unwrap(), read_to_close(&mut client).await)
}

/// Sends a request that no engine sees.
async fn ask(stage: &Stage, line: &str, body: &str) -> (u16, Value) {
    let mut client = stage.client().await;
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    write(&mut client, &format!("{head}{body}")).await;
    let answer = read_to_close(&mut client).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_else(|_| json!(body)))
}

fn lines(answer: &str) -> Vec<Value> {
    let body = unchunked(answer).unwrap();
    body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_embedding_of_an_engine_without_the_flag_is_refused_in_ollamas_shape() {
    on_stage(|stage| async move {
        let refusal = whole(
            "501 Not Implemented",
            r#"{"error":{"message":"This server does not support embeddings."}}"#,
        );
        let body = json!({"model": "real", "input": "x"});
        let (_, answer) = exchange(&stage, "/api/embed", &body, &refusal).await;
        assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
        let reported =
            r#""error":"\"real\" does not support embeddings: its engine runs without `--embeddings`"#;
        assert!(answer.contains(reported), "{answer}");
    });
}

#[test]
fn filters_change_requests_of_both_apis_before_the_engine_gets_them() {
    let file = "[models.real]\ncmd = 'x ${PORT}'\n[models.real.filters]\nstrip = ['top_k']\nset = {temperature = 0.5}\n\
        system = 'be kind'\n[models.real.filters.set-by-name.alias]\ntemperature = 1.5\n";
    let roster = plimsoll_config::parse("p.toml", file, &|_| None).unwrap();
    on_stage(|stage| async move {
        stage.service.filters.replace(Some(roster.models[0].filters.clone()));
        let done = whole("200 OK", r#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#);
        let mut requested = chat(&json!({"model": "alias", "top_k": 4, "stream": false}));
        let (seen, _) = exchange(&stage, "/v1/chat/completions", &requested, &done).await;
        let expected = json!({
            "model": "real", "stream": false, "temperature": 1.5,
            "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
        });
        assert_eq!(seen, expected);
        requested["options"] = json!({"top_k": 4});
        let (seen, _) = exchange(&stage, "/api/chat", &requested, &done).await;
        assert_eq!(
            (&seen["temperature"], &seen["model"], seen.get("top_k")),
            (&json!(1.5), &json!("real"), None)
        );
        requested["model"] = json!("real");
        let (seen, _) = exchange(&stage, "/v1/chat/completions", &requested, &done).await;
        assert_eq!(seen["temperature"], json!(0.5));
        let long = "x".repeat(400_000);
        let body = json!({"prompt": long, "model": "real", "top_k": 1});
        let (seen, _) = exchange(&stage, "/v1/completions", &body, &done).await;
        assert_eq!((seen["prompt"].as_str().unwrap().len(), seen.get("top_k")), (400_000, None));
    });
}

#[test]
fn a_chat_is_streamed_as_lines_and_its_time_to_live_is_set_when_it_is_over() {
    on_stage(|stage| async move {
        let event = r#"data: {"choices":[{"delta":{"content":"hello"}}]}"#;
        let end = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        let script = format!(
            "{STREAM}{}{}0\r\n\r\n",
            chunk(&format!("{event}\n\n{end}\n\n")),
            chunk("data: [DONE]\n\n")
        );
        let request = chat(&json!({"keep_alive": "90s"}));
        let (requested, answer) = exchange(&stage, "/api/chat", &request, &script).await;
        assert_eq!((&requested["model"], &requested["stream"]), (&json!("real"), &json!(true)));
        assert!(answer.contains("Content-Type: application/x-ndjson\r\n"), "{answer}");
        let lines = lines(&answer);
        assert_eq!(
            (&lines[0]["message"]["content"], &lines[0]["model"]),
            (&json!("hello"), &json!("real:latest"))
        );
        assert_eq!((&lines[1]["done"], &lines[1]["done_reason"]), (&json!(true), &json!("stop")));
        stage.until_idle().await;
        while stage.service.kept.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*stage.service.kept.borrow(), [Some(Duration::from_secs(90))]);
    });
}

#[test]
fn whole_answers_are_translated_and_refusals_keep_their_status() {
    on_stage(|stage| async move {
        let whole_chat =
            json!({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}).to_string();
        let request = chat(&json!({"stream": false}));
        let (_, answer) = exchange(&stage, "/api/chat", &request, &whole("200 OK", &whole_chat)).await;
        assert!(answer.contains("\"content\":\"hello\"") && answer.contains("\"done\":true"), "{answer}");
        let refusal = r#"{"error":{"code":400,"message":"the request exceeds the context"}}"#;
        let (_, answer) =
            exchange(&stage, "/api/chat", &chat(&json!({})), &whole("400 Bad Request", refusal)).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains(r#""error":"the request exceeds the context""#), "{answer}");
        let vectors = r#"{"data":[{"embedding":[1,2]}]}"#;
        let (requested, answer) = exchange(
            &stage,
            "/api/embed",
            &json!({"model": "alias", "input": "x"}),
            &whole("200 OK", vectors),
        )
        .await;
        assert_eq!(requested, json!({"model": "real", "input": "x"}));
        assert!(answer.contains(r#""embeddings":[[1,2]]"#), "{answer}");
    });
}

#[test]
fn an_engine_that_answers_nonsense_or_dies_gives_an_error_in_ollamas_shape() {
    on_stage(|stage| async move {
        let event = chunk("data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n");
        for (script, status, words) in [
            (format!("{STREAM}{event}"), "200", "real died in mid-answer"),
            (format!("{STREAM}{event}0\r\n\r\n"), "200", "ended early"),
            (format!("{STREAM}{}", chunk("data: nonsense\n\n")), "200", "not JSON of the OpenAI API"),
            (whole("200 OK", "nonsense"), "502", "not JSON of the OpenAI API"),
            (whole("200 OK", "{\"error\":{\"message\":\"boom\"}}"), "502", "boom"),
            (whole("500 Internal Server Error", ""), "500", "without a reason"),
            (whole("302 Found", ""), "502", "without a reason"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"choices\"".to_owned(), "502", "ended early"),
        ] {
            let (_, answer) = exchange(&stage, "/api/chat", &chat(&json!({})), &script).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{script}: {answer}");
            let body =
                unchunked(&answer).unwrap_or_else(|| answer.split_once("\r\n\r\n").unwrap().1.to_owned());
            let last: Value = serde_json::from_str(body.lines().last().unwrap()).unwrap();
            assert!(last["error"].as_str().unwrap().contains(words), "{script}: {body}");
            stage.until_idle().await;
        }
    });
}

#[test]
fn a_client_that_leaves_cancels_the_engines_work_and_still_sets_the_time() {
    on_stage(|stage| async move {
        for streams in [true, false] {
            let mut client = stage.client().await;
            let request = chat(&json!({"keep_alive": 0, "stream": streams})).to_string();
            write(&mut client, &post("/api/chat", &request)).await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            write(&mut engine, &format!("{STREAM}{}", chunk("data: {\"choices\":[]}\n\n: x\n\n"))).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(client);
            assert_eq!(read_some(&mut engine).await, "", "the engine's connection is closed");
            stage.until_idle().await;
        }
        assert_eq!(*stage.service.kept.borrow(), [Some(Duration::ZERO); 2]);
    });
}

#[test]
fn a_request_without_a_prompt_loads_or_unloads() {
    on_stage(|stage| async move {
        for (path, body, answer) in [
            (
                "/api/generate",
                json!({"model": "real"}),
                json!({"done_reason": "load", "response": "", "done": true}),
            ),
            ("/api/generate", json!({"model": "real", "keep_alive": 0}), json!({"done_reason": "unload"})),
            ("/api/chat", json!({"model": "real", "messages": []}), json!({"done_reason": "load"})),
            ("/api/embed", json!({"model": "real", "input": []}), json!({"embeddings": []})),
            ("/api/embeddings", json!({"model": "real"}), json!({"embedding": []})),
        ] {
            let (status, seen) = ask(&stage, &format!("POST {path}"), &body.to_string()).await;
            assert_eq!(status, 200, "{path}: {seen}");
            for (key, value) in answer.as_object().unwrap() {
                assert_eq!(&seen[key], value, "{path}: {seen}");
            }
        }
        assert_eq!(stage.service.options.borrow().len(), 4, "an unload waits for no model");
        assert_eq!(*stage.service.kept.borrow(), [None, Some(Duration::ZERO), None, None, None]);
    });
}

#[test]
fn the_store_is_listed_and_not_changed() {
    on_stage(|stage| async move {
        let (_, version) = ask(&stage, "GET /api/version", "").await;
        let numbers: Vec<u32> =
            version["version"].as_str().unwrap().split('.').map(|part| part.parse().unwrap()).collect();
        assert!(numbers >= vec![0, 6, 4], "{version}");
        assert_eq!(version["name"], "plimsoll");
        let (_, tags) = ask(&stage, "GET /api/tags", "").await;
        assert_eq!(tags["models"][0]["model"], "real");
        let (_, running) = ask(&stage, "GET /api/ps", "").await;
        assert!(running["models"][0]["expires_at"].as_str().unwrap().ends_with('Z'), "{running}");
        stage.service.state.set(ModelState::Unloaded);
        assert_eq!(ask(&stage, "GET /api/ps", "").await.1, json!({"models": []}));
        let (_, shown) = ask(&stage, "POST /api/show", r#"{"name":"real:latest"}"#).await;
        assert!(shown["model_info"].is_object() && shown["capabilities"].is_array(), "{shown}");
        let pull = r#"{"model":"real","stream":false}"#;
        assert_eq!(ask(&stage, "POST /api/pull", pull).await, (200, json!({"status": "success"})));
        let (status, refusal) = ask(&stage, "POST /api/pull", r#"{"model":"llama3.2"}"#).await;
        let reported = refusal["error"].as_str().unwrap();
        assert!(status == 404 && reported.contains("'llama3.2' is a name of Ollama's library"), "{refusal}");
        assert!(reported.contains("pull hf.co/USER/REPO:QUANT"), "{refusal}");
        for (line, body, reported) in [
            ("POST /api/push", r#"{"model":"real"}"#, "in the configuration"),
            ("POST /api/blobs/sha256:0", "x", "in the configuration"),
            (
                "POST /api/copy",
                r#"{"source":"real","destination":"mine"}"#,
                r#"add `aliases = ["mine"]` to [models."real"]"#,
            ),
            (
                "POST /api/create",
                r#"{"model":"mine","from":"real","system":"be \"kind\"","parameters":{"stop":["X"]}}"#,
                r#"as [models."mine"], with `filters.system = "be \"kind\""`, with `filters.default.stop = ["X"]`"#,
            ),
            ("POST /api/create", r#"{"name":"mine","files":{}}"#, r#"add a section [models."mine"]"#),
        ] {
            let (status, refusal) = ask(&stage, line, body).await;
            assert!(
                status == 501 && refusal["error"].as_str().unwrap().contains(reported),
                "{line}: {refusal}"
            );
        }
        for (line, body, status) in [
            ("POST /api/copy", r#"{"source":"none","destination":"mine"}"#, 404),
            ("POST /api/create", r#"{"model":"mine","from":"none"}"#, 404),
            ("POST /api/copy", "{}", 400),
            ("POST /api/create", "{}", 400),
            ("POST /api/create", "[", 400),
        ] {
            let (code, refusal) = ask(&stage, line, body).await;
            assert!(code == status && refusal["error"].is_string(), "{line} {body}: {refusal}");
        }
        assert_eq!(ask(&stage, "GET /", "").await, (200, json!("Ollama is running")));
        assert!(ask(&stage, "GET /api", "").await.1.as_str().unwrap().contains("/v1/models"));
        assert_eq!(ask(&stage, "DELETE /api/delete", r#"{"model":"hf.co/u/r:Q4"}"#).await.0, 200);
        assert_eq!(*stage.service.orders.borrow(), ["remove"]);
        let (_, studio) = ask(&stage, "GET /api/v0/models", "").await;
        assert_eq!(
            (&studio["data"][0]["id"], &studio["data"][0]["state"]),
            (&json!("real"), &json!("not-loaded"))
        );
        assert_eq!(ask(&stage, "GET /api/v0/models/real", "").await.1["object"], "model");
        assert_eq!(ask(&stage, "GET /api/v0/models/zz", "").await.0, 404);
    });
}

#[test]
fn hostile_bodies_are_refused_in_ollamas_shape_without_an_engine() {
    on_stage(|stage| async move {
        let image = json!({"messages": [{"role": "user", "content": "x", "images": ["/etc/passwd"]}]});
        for (path, body, status, words) in [
            ("/api/chat", String::new(), 400, "missing request body"),
            ("/api/chat", "{".to_owned(), 400, "not a valid request of this API"),
            ("/api/chat", "[".repeat(100_000), 400, "not a valid request of this API"),
            ("/api/chat", "{}".to_owned(), 400, "model is required"),
            ("/api/chat", chat(&image).to_string(), 400, "an image is not base64"),
            ("/api/chat", chat(&json!({"keep_alive": "soon"})).to_string(), 400, "`keep_alive`"),
            ("/api/chat", json!({"model": "../\u{0}\"\r\nx: y"}).to_string(), 404, "not found"),
            ("/api/chat", json!({"model": "x".repeat(100_000)}).to_string(), 400, "is too long"),
            ("/api/generate", json!({"model": ":latest"}).to_string(), 404, "not found"),
            ("/api/show", "{}".to_owned(), 400, "model is required"),
            ("/api/show", "\u{feff}".to_owned(), 400, "not a valid request of this API"),
        ] {
            let (seen, refusal) = ask(&stage, &format!("POST {path}"), &body).await;
            let error = refusal["error"].as_str().unwrap_or_default();
            assert!(seen == status && error.contains(words), "{path}: {seen} {refusal}");
        }
        let (status, refusal) = ask(&stage, "GET /api/chat", "").await;
        assert_eq!((status, refusal["error"].is_string()), (405, true));
        assert!(stage.service.options.borrow().is_empty(), "no engine was asked for");
    });
}

#[test]
fn a_huge_image_reaches_the_engine_once_and_counts_as_the_body_that_it_is() {
    let mut settings = HttpSettings::default();
    settings.limits.bodies = Bytes::mib(3);
    on_stage_with(settings, 0, |stage| async move {
        let image = format!("iVBORw0KGgo{}", "A".repeat(2_000_000));
        let request = chat(
            &json!({"messages": [{"role": "user", "content": "x", "images": [image]}], "stream": false}),
        );
        let answer =
            json!({"choices": [{"message": {"content": "a ship"}, "finish_reason": "stop"}]}).to_string();
        for _ in 0..3 {
            let (requested, answer) =
                exchange(&stage, "/api/chat", &request, &whole("200 OK", &answer)).await;
            let url = requested["messages"][0]["content"][1]["image_url"]["url"].as_str().unwrap();
            assert_eq!(url.len(), "data:image/png;base64,".len() + image.len());
            assert!(answer.contains("a ship"), "{answer}");
        }
    });
}

#[test]
fn errors_of_messages_have_anthropics_shape() {
    on_stage(|stage| async move {
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let (status, refusal) = ask(&stage, &format!("POST {path}"), r#"{"model":"claude"}"#).await;
            assert_eq!((status, &refusal["type"]), (404, &json!("error")));
            assert_eq!(refusal["error"]["type"], "not_found_error");
            assert_eq!(refusal["error"]["message"], "model 'claude' not found");
        }
        let (_, refusal) = ask(&stage, "POST /v1/chat/completions", r#"{"model":"gpt"}"#).await;
        assert_eq!(refusal.get("type"), None);
    });
}

#[test]
fn whole_answers_count_as_bodies_until_their_clients_have_read_them() {
    let mut settings = HttpSettings::default();
    settings.limits.bodies = Bytes::mib(12);
    on_stage_with(settings, 0, |stage| async move {
        let numbers = vec!["0.123456"; 300_000].join(",");
        let answer = format!("{{\"data\":[{{\"embedding\":[{numbers}]}}]}}");
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
        let ask = post("/api/embed", r#"{"model":"real","input":"x"}"#);
        let mut unread = Vec::new();
        for _ in 0..3 {
            let mut client = stage.client().await;
            write(&mut client, &ask).await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            write(&mut engine, &answer).await;
            // Its first bytes show that it was translated.
            assert!(read_some(&mut client).await.starts_with("HTTP/1.1 200 "));
            unread.push(client);
        }
        let refused = |stage: Stage| async {
            let mut client = stage.client().await;
            write(&mut client, &ask).await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            let _ = tokio::io::AsyncWriteExt::write_all(&mut engine, answer.as_bytes()).await;
            (read_some(&mut client).await.starts_with("HTTP/1.1 503 "), stage)
        };
        let (is_refused, stage) = refused(stage).await;
        assert!(is_refused, "three hold eight MB of twelve MiB, and a fourth needs five for a while");
        drop(unread);
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(!refused(stage).await.0, "the memory was given back");
    });
}

#[test]
fn a_request_is_bounded_by_its_items_as_well_as_by_its_bytes() {
    on_stage(|stage| async move {
        let many = |item: &str, count: usize| vec![item; count].join(",");
        for body in [
            format!("\"messages\":[{}]", many("{\"role\":\"user\"}", 20_000)),
            format!("\"messages\":[{{\"role\":\"user\",\"images\":[{}]}}]", many("0", 300)),
            format!("\"options\":{{\"stop\":[{}]}}", many("0", 40_000)),
            format!("\"keep_alive\":[{}]", many("0", 40_000)),
        ] {
            let mut client = stage.client().await;
            write(&mut client, &post("/api/chat", &format!("{{\"model\":\"real\",{body}}}"))).await;
            let answer = read_until(&mut client, "}").await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
            assert!(answer.contains("more than") || answer.contains("longer than"), "{answer}");
        }
    });
}
