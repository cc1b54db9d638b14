//! Tests of the translation of Ollama's requests into requests of OpenAI's API.

use plimsoll_fuzz::mutants;

use super::super::request;
use super::*;

fn translated(endpoint: Endpoint, request: &Value) -> Result<Option<(&'static str, Value)>, String> {
    let text = request.to_string();
    let request = OllamaRequest::read(text.as_bytes()).map_err(|problem| problem.0)?;
    let found = translate(endpoint, &request, "a \"model\"").map_err(|problem| problem.0)?;
    Ok(found.map(|request| {
        assert_eq!(&request.body[request.name.clone()], br#""a \"model\"""#);
        (request.path, serde_json::from_slice(&request.body).unwrap())
    }))
}

#[test]
fn a_chat_becomes_a_chat_with_its_tools_format_and_options() {
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}});
    let request = json!({
        "model": "m:latest", "messages": [{"role": "user", "content": "hi"}], "tools": [tool],
        "format": {"type": "object"}, "options": {"num_predict": 5}, "think": "max", "keep_alive": "5m",
    });
    let (path, body) = translated(Endpoint::Chat, &request).unwrap().unwrap();
    assert_eq!(path, "/v1/chat/completions");
    assert_eq!(
        body,
        json!({
            "model": "a \"model\"", "messages": [{"role": "user", "content": "hi"}], "stream": true,
            "stream_options": {"include_usage": true}, "tools": [tool], "max_tokens": 5,
            "response_format": {"type": "json_schema", "json_schema": {"name": "response", "schema": {"type": "object"}}},
            "chat_template_kwargs": {"enable_thinking": true, "reasoning_effort": "high"},
        })
    );
}

#[test]
fn a_prompt_is_a_chat_unless_it_is_raw_or_has_a_gap() {
    let request = |more: Value| {
        let mut request = json!({"model": "m", "prompt": "hi", "stream": false});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        translated(Endpoint::Generate, &request).unwrap().unwrap()
    };
    let (path, body) = request(json!({"system": "be brief", "format": "json"}));
    assert_eq!((path, &body["messages"][0]["role"]), ("/v1/chat/completions", &json!("system")));
    assert_eq!((&body["messages"][1]["content"], &body["stream"]), (&json!("hi"), &json!(false)));
    assert_eq!(body["response_format"], json!({"type": "json_object"}));
    let (path, body) = request(json!({"raw": true, "format": {"type": "array"}}));
    assert_eq!(
        (path, &body["prompt"], &body["json_schema"]),
        ("/v1/completions", &json!("hi"), &json!({"type": "array"}))
    );
    let (path, body) = request(json!({"suffix": "end"}));
    assert_eq!(
        (path, &body["input_prefix"], &body["input_suffix"]),
        ("/infill", &json!("hi"), &json!("end"))
    );
}

#[test]
fn embeddings_take_a_text_or_several() {
    let (path, body) =
        translated(Endpoint::Embed, &json!({"model": "m", "input": ["a", "b"]})).unwrap().unwrap();
    assert_eq!((path, body), ("/v1/embeddings", json!({"model": "a \"model\"", "input": ["a", "b"]})));
    let (_, body) = translated(Endpoint::Embeddings, &json!({"model": "m", "prompt": "a"})).unwrap().unwrap();
    assert_eq!(body["input"], "a");
}

#[test]
fn nothing_to_answer_is_a_load() {
    for (endpoint, request) in [
        (Endpoint::Chat, json!({"model": "m"})),
        (Endpoint::Chat, json!({"model": "m", "messages": null, "keep_alive": 0})),
        (Endpoint::Generate, json!({"model": "m", "prompt": ""})),
        (Endpoint::Embed, json!({"model": "m", "input": []})),
        (Endpoint::Embeddings, json!({"model": "m", "prompt": ""})),
    ] {
        assert_eq!(translated(endpoint, &request), Ok(None), "{request}");
    }
}

#[test]
fn untranslatable_requests_are_rejected_with_a_reason() {
    let chat = |field: &str, value: Value| {
        let mut request = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        request[field] = value;
        (Endpoint::Chat, request)
    };
    let generate = |field: &str, value: Value| {
        let mut request = json!({"model": "m", "prompt": "x"});
        request[field] = value;
        (Endpoint::Generate, request)
    };
    for ((endpoint, request), words) in [
        (chat("format", json!("xml")), "`format` must be"),
        (chat("format", json!([])), "`format` must be"),
        (chat("think", json!("much")), "`think` must be"),
        (chat("think", json!(3)), "`think` must be"),
        (chat("options", json!({"top_k": "x"})), "option \"top_k\""),
        (chat("options", json!([])), "not a valid request of this API"),
        (generate("template", json!("{{ .Prompt }}")), "--chat-template"),
        (generate("context", json!([1, 2])), "/api/chat"),
        (generate("prompt", json!(["x"])), "`prompt` must be text"),
        ((Endpoint::Embed, json!({"model": "m", "input": {"x": 1}})), "`input` must be a string"),
        ((Endpoint::Chat, json!({})), "model is required"),
        ((Endpoint::Chat, json!([])), "not a valid request of this API"),
        ((Endpoint::Chat, json!({"model": 7})), "not a valid request of this API"),
    ] {
        let refusal = translated(endpoint, &request).unwrap_err();
        assert!(refusal.contains(words), "{request}: {refusal}");
    }
}

const CHAT: &[u8] = br#"{"model":"m","stream":false,"keep_alive":"5m","think":"low","format":{"type":"object"},
    "options":{"num_predict":9,"stop":["x"],"top_k":1.0},"tools":[{"type":"function"}],"messages":[
    {"role":"user","content":"a\u005f \ud83d\ude00","images":["iVBORw0KGgo="]},
    {"role":"assistant","content":null,"thinking":"t","tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":[1]}}}]},
    {"role":"tool","content":"1","tool_name":"f"}]}"#;
const PROMPT: &[u8] =
    br#"{"model":"m","prompt":"a","suffix":"b","system":"c","raw":true,"input":["a"],"dimensions":3,"context":[]}"#;

#[test]
fn million_requests_are_refused_or_become_json() {
    let tokens: [&[u8]; 10] = [
        b"\"messages\":",
        b"null",
        b"\"images\":[",
        b"\\ud800",
        b"{\"",
        b"}]",
        b"1e400",
        b"-1",
        b"\"suffix\":",
        b"\"raw\":true",
    ];
    mutants(&[CHAT, PROMPT], &tokens, |body| {
        let Ok(request) = OllamaRequest::read(body) else { return };
        let _ = (request.keep(), request::model_of(body), options::context(&request.options));
        for endpoint in [Endpoint::Chat, Endpoint::Generate, Endpoint::Embed, Endpoint::Embeddings] {
            if let Ok(Some(found)) = translate(endpoint, &request, "m") {
                // Texts go to the engine as they came, which judges their escapes.
                let text: &RawValue = serde_json::from_slice(&found.body).unwrap();
                assert!(text.get().starts_with("{\"model\":\"m\""), "{}", text.get());
                // A body is not many times what the client paid for.
                assert!(found.body.len() <= 8 * body.len() + 400, "{}", String::from_utf8_lossy(body));
            }
        }
    });
}
