//! Tests of the translation of engine answers into answers of Ollama's API.

use super::*;

const TIMES: AnswerTimes = AnswerTimes {
    now: Timestamp::UNIX_EPOCH,
    total: Duration::from_millis(900),
    first_byte: Duration::from_millis(500),
};

fn partial(endpoint: Endpoint) -> PartialAnswer {
    PartialAnswer::new(endpoint, "m:latest".to_owned())
}

fn take(answer: &mut PartialAnswer, json: &Value) -> Result<AnswerText, AnswerError> {
    answer.take(json.to_string().as_bytes())
}

#[test]
fn a_whole_chat_has_its_text_its_thoughts_its_calls_and_the_engines_figures() {
    let mut answer = partial(Endpoint::Chat);
    let call = |name: &str, arguments: &str| json!({"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}});
    let engine = json!({
        "choices": [{"finish_reason": "tool_calls", "message": {
            "content": "hello", "reasoning_content": "hm", "tool_calls": [call("f", "{\"z\":1}"), call("g", "")],
        }}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27},
        "timings": {"cache_n": 5, "prompt_n": 15, "prompt_ms": 200.0, "predicted_n": 7, "predicted_ms": 100.5},
    });
    let text = take(&mut answer, &engine).unwrap();
    assert_eq!(
        answer.whole(&text, TIMES).unwrap(),
        json!({
            "model": "m:latest", "created_at": "1970-01-01T00:00:00Z", "done": true, "done_reason": "stop",
            "message": {"role": "assistant", "content": "hello", "thinking": "hm", "tool_calls": [
                {"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"z": 1}}},
                {"id": "c1", "function": {"index": 1, "name": "g", "arguments": {}}},
            ]},
            "total_duration": 900_000_000, "load_duration": 300_000_000, "prompt_eval_count": 20,
            "prompt_eval_duration": 200_000_000, "eval_count": 7, "eval_duration": 100_500_000,
        })
    );
}

#[test]
fn the_load_of_an_answer_in_one_piece_ends_before_its_prompt() {
    let mut answer = partial(Endpoint::Generate);
    let engine = json!({"content": "x", "timings": {"prompt_ms": 200.0, "predicted_ms": 650.0}});
    let text = take(&mut answer, &engine).unwrap();
    let times = AnswerTimes { first_byte: Duration::from_millis(899), ..TIMES };
    let whole = answer.whole(&text, times).unwrap();
    assert_eq!(whole["load_duration"], 50_000_000, "900 ms less 200 ms and 650 ms");
}

#[test]
fn a_completion_and_a_filled_gap_are_responses() {
    for (engine, reason) in [
        (json!({"choices": [{"text": "x", "finish_reason": "length"}]}), "length"),
        (json!({"content": "x", "stop": true, "stop_type": "limit"}), "length"),
        (json!({"content": "x", "stop": true, "stop_type": "eos"}), "stop"),
        (json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}), "stop"),
    ] {
        let mut answer = partial(Endpoint::Generate);
        let text = take(&mut answer, &engine).unwrap();
        let whole = answer.whole(&text, TIMES).unwrap();
        assert_eq!((&whole["response"], &whole["done_reason"]), (&json!("x"), &json!(reason)));
        assert_eq!(whole.get("eval_count"), None, "what the engine does not tell is no zero");
    }
}

#[test]
fn embeddings_keep_their_digits() {
    let engine = br#"{"data":[{"embedding":[0.10,1e-7]},{"embedding":[2]}],"usage":{"prompt_tokens":3}}"#;
    let text = partial(Endpoint::Embed).embeddings(engine, TIMES).unwrap();
    assert!(text.contains(r#""embeddings":[[0.10,1e-7],[2]]"#), "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["prompt_eval_count"], 3);
    assert_eq!(
        partial(Endpoint::Embeddings).embeddings(engine, TIMES).unwrap(),
        r#"{"embedding":[0.10,1e-7]}"#
    );
    assert!(partial(Endpoint::Embed).embeddings(b"{}", TIMES).is_err());
    let hostile =
        PartialAnswer::new(Endpoint::Embed, "null\"}".to_owned()).embeddings(engine, TIMES).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&hostile).unwrap()["model"], "null\"}");
}

#[test]
fn nonsense_of_an_engine_is_an_error() {
    for engine in ["", "nonsense", "[]", "{\"choices\":7}", "{\"choices\":[{\"message\":{\"content\":[]}}]}"]
    {
        assert!(partial(Endpoint::Chat).take(engine.as_bytes()).is_err(), "{engine}");
    }
    let failed = take(&mut partial(Endpoint::Chat), &json!({"error": {"message": "boom"}}));
    assert_eq!(failed, Err(AnswerError::Engine("boom".to_owned())));
    let part = |index: u64, arguments: &str| json!({"choices": [{"delta": {"tool_calls": [{"index": index, "function": {"name": "f", "arguments": arguments}}]}}]});
    let mut many = partial(Endpoint::Chat);
    assert_eq!(take(&mut many, &part(u64::MAX, "")), Err(AnswerError::TooManyCalls));
    let mut long = partial(Endpoint::Chat);
    let piece = part(0, &"x".repeat(100_000));
    assert!((0..11).any(|_| take(&mut long, &piece) == Err(AnswerError::TooManyCalls)));
    for arguments in ["[1]", "{\"a\":", "7"] {
        let mut wrong = partial(Endpoint::Chat);
        take(&mut wrong, &part(0, arguments)).unwrap();
        assert_eq!(wrong.called(TIMES), Err(AnswerError::Arguments { name: "f".to_owned() }));
    }
}
