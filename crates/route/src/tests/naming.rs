//! Tests of requests that name no model or an unknown one, and of engine answers that describe the whole
//! server.

use plimsoll_scheduler::ModelState;

use super::stub::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Inner-Name: 1\r\n\r\nok";

/// Sends a request, lets the engine answer it, and returns what the engine got and the client.
async fn through(stage: &Stage, request: &str) -> (String, String) {
    let mut client = stage.client().await;
    write(&mut client, request).await;
    let mut engine = stage.engine().await;
    let requested = read_request(&mut engine).await;
    write(&mut engine, OK).await;
    (requested, read_until(&mut client, "ok").await)
}

async fn refused(stage: &Stage, request: &str) -> String {
    let mut client = stage.client().await;
    write(&mut client, request).await;
    read_until(&mut client, "}").await
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

#[test]
fn the_only_model_answers_what_names_no_model_or_an_unknown_one() {
    on_stage(|stage| async move {
        stage.service.is_only.set(true);
        for request in
            [post("/completion", r#"{"prompt":"a"}"#), post("/infill", ""), get("/slots"), get("/v1/x")]
        {
            let (_, answer) = through(&stage, &request).await;
            assert!(!answer.contains("X-Plimsoll-Model"), "{answer}");
        }
        let body = r#"{"model":"gpt-4.1"}"#;
        let (requested, answer) = through(&stage, &post("/v1/chat/completions", body)).await;
        assert!(requested.ends_with(r#"{"model":"real"}"#), "the engine gets its own name: {requested}");
        assert!(answer.contains("X-Plimsoll-Model: real\r\n"), "{answer}");
        // An order must name its model: nothing else is unloaded.
        let order = refused(&stage, &post("/models/unload", r#"{"model":"gpt-4.1"}"#)).await;
        assert!(order.starts_with("HTTP/1.1 404 "), "{order}");
        assert!(refused(&stage, &post("/models/unload", "{}")).await.starts_with("HTTP/1.1 400 "));
    });
}

#[test]
fn a_model_with_a_bad_flag_is_refused_with_its_reason() {
    on_stage(|stage| async move {
        stage.service.is_only.set(true);
        let answer = refused(&stage, &post("/v1/completions", r#"{"model":"refused"}"#)).await;
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("model_misconfigured"), "{answer}");
    });
}

#[test]
fn a_body_that_is_no_json_is_refused_as_such() {
    on_stage(|stage| async move {
        for body in ["", "not json", "{", r#"{"model":"real"#, "[1,"] {
            let answer = refused(&stage, &post("/v1/completions", body)).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
            assert!(answer.contains("the request body is not JSON: "), "{body}: {answer}");
        }
        for body in ["[]", "7", r#"{"model":7}"#] {
            let answer = refused(&stage, &post("/v1/completions", body)).await;
            assert!(answer.contains("model name is missing"), "{body}: {answer}");
        }
        // Depth is no work: the walk is bounded.
        let deep = "[".repeat(500_000);
        assert!(refused(&stage, &post("/v1/completions", &deep)).await.starts_with("HTTP/1.1 400 "));
    });
}

/// A name was found before the damage, so the engine gets the body; its 500 says nothing that a client can
/// use.
#[test]
fn a_body_that_the_engine_cannot_parse_is_a_fault_of_the_client() {
    const FAULT: &str =
        "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 5\r\n\r\nparse";
    on_stage(|stage| async move {
        let long = format!("{{\"model\":\"real\",\"p\":\"{}\" garbage", "x".repeat(1 << 20));
        let deep = format!("{{\"model\":\"real\",\"p\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
        for (body, is_reported) in [
            (r#"{"model":"real", garbage"#, true),
            (r#" {"model":"real"} {"#, true),
            (r#"{"model":"real"}"#, false),
            (r#"{"model":"real","temperature":NaN, garbage"#, false),
            (&*deep, false),
            (&*long, false),
        ] {
            let mut client = stage.client().await;
            write(&mut client, &post("/v1/completions", body)).await;
            let mut engine = stage.engine().await;
            read_request(&mut engine).await;
            write(&mut engine, FAULT).await;
            let answer = read_until(&mut client, if is_reported { "}}" } else { "parse" }).await;
            assert_eq!(answer.starts_with("HTTP/1.1 400 "), is_reported, "{answer}");
            assert_eq!(answer.contains("body_not_json"), is_reported, "{answer}");
        }
        stage.until_idle().await;
    });
}

#[test]
fn tools_are_served_by_a_model_that_has_them() {
    on_stage(|stage| async move {
        let answer = refused(&stage, &get("/tools")).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("feature_disabled"), "{answer}");
        stage.service.has_tools.set(true);
        let call = r#"{"tool":"read_file","params":{}}"#;
        for (request, requested) in [
            (get("/tools"), "GET /tools "),
            (post("/tools", call), "POST /tools "),
            (get("/cors-proxy?url=http://x"), "GET /cors-proxy?url=http://x "),
        ] {
            assert!(through(&stage, &request).await.0.starts_with(requested), "{requested}");
        }
    });
}

#[test]
fn names_of_headers_are_written_like_those_of_llama_server() {
    on_stage(|stage| async move {
        let (_, answer) = through(&stage, &get("/slots?model=real")).await;
        assert!(answer.contains("X-Inner-Name: 1\r\n"), "{answer}");
    });
}

#[test]
fn properties_are_the_engines_while_the_only_model_runs() {
    on_stage(|stage| async move {
        stage.service.is_only.set(true);
        assert!(through(&stage, &get("/props")).await.0.starts_with("GET /props "));
        stage.service.state.set(ModelState::Unloaded);
        let own = refused(&stage, &get("/props")).await;
        assert!(own.contains(r#""role":"router""#) || own.contains("cors_proxy_enabled"), "{own}");
        assert_eq!(stage.service.in_flight.get(), 0, "a look loads nothing");
    });
}

#[test]
fn the_engines_metrics_stand_behind_this_servers() {
    on_stage(|stage| async move {
        stage.service.is_only.set(true);
        for (answer, reported) in [
            (
                "HTTP/1.1 200 OK\r\nProcess-Start-Time-Unix: 7\r\nContent-Length: 13\r\n\r\nllamacpp:x 1\n",
                true,
            ),
            ("HTTP/1.1 501 Not Implemented\r\nContent-Length: 13\r\n\r\nllamacpp:x 1\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nllamacpp:x 1\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\u{fffd}", false),
            ("nonsense\r\n\r\n", false),
        ] {
            let mut client = stage.client().await;
            write(&mut client, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
            let mut engine = stage.engine().await;
            assert!(read_request(&mut engine).await.starts_with("GET /metrics "));
            write(&mut engine, answer).await;
            drop(engine);
            let page = read_to_close(&mut client).await;
            assert!(page.contains("plimsoll_loads_total{model=\"real\"} 7\n"), "{page}");
            assert_eq!(page.contains("\nllamacpp:x 1\n"), reported, "{answer}: {page}");
            assert_eq!(page.contains("Process-Start-Time-Unix: 7"), reported);
        }
        assert_eq!(stage.service.options.borrow().len(), 0, "a look is no use of the model");
    });
}
