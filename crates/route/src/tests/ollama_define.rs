//! Tests of Ollama's `/api/create` and `/api/copy` where the operator has set a folder for derived models.

use std::sync::Arc;

use plimsoll_config::{DerivedFilters, RequestFilters};
use plimsoll_hub::DerivedModel;
use serde_json::{Map, Value, json};

use super::stub::*;

async fn ask(stage: &Stage, path: &str, body: &Value) -> (u16, String) {
    let mut client = stage.client().await;
    let request = post(path, &body.to_string()).replace("host:", "connection: close\r\nhost:");
    write(&mut client, &request).await;
    let answer = read_to_close(&mut client).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { unreachable!() };
    map
}

fn derived(name: &str, default: Value, system: Option<&str>) -> DerivedModel {
    let (name, of) = (name.to_owned(), "real".to_owned());
    DerivedModel { name, of, default: object(default), system: system.map(str::to_owned) }
}

#[test]
fn a_copy_and_a_creation_derive_a_model_with_its_settings() {
    on_stage(|stage| async move {
        stage.service.derives.set(true);
        let copy = json!({ "source": "real:latest", "destination": "twin:latest" });
        assert_eq!(ask(&stage, "/api/copy", &copy).await, (200, String::new()));
        let mut create = json!({
            "model": "mine", "from": "alias", "system": "be kind", "license": ["MIT"], "template": "", "messages": [],
            "parameters": { "temperature": 0.2, "stop": "X", "num_predict": 9, "top_k": null },
        });
        let (status, lines) = ask(&stage, "/api/create", &create).await;
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((status, lines.last()), (200, Some(&json!({ "status": "success" }))));
        assert!(lines.len() > 1 && lines.iter().all(|line| line["status"].is_string()));
        create["stream"] = json!(false);
        assert_eq!(ask(&stage, "/api/create", &create).await, (200, "{\"status\":\"success\"}\n".to_owned()));
        let own = json!({ "temperature": 0.2, "stop": ["X"], "max_tokens": 9 });
        let mine = derived("mine", own, Some("be kind"));
        assert_eq!(*stage.service.derived.borrow(), [derived("twin", json!({}), None), mine.clone(), mine]);
    });
}

#[test]
fn a_derived_model_hands_on_its_settings_and_never_itself() {
    let parent = DerivedFilters {
        default: object(json!({ "temperature": 1, "seed": 7 })),
        system: Some("old".to_owned()),
    };
    let filters =
        RequestFilters { derived: [("mine".to_owned(), parent)].into(), ..RequestFilters::default() };
    on_stage(|stage| async move {
        stage.service.derives.set(true);
        stage.service.filters.replace(Some(Arc::new(filters)));
        let create = json!({ "model": "next", "from": "mine:latest", "parameters": { "temperature": 0.5 } });
        assert_eq!(ask(&stage, "/api/create", &create).await.0, 200);
        let expected = derived("next", json!({ "temperature": 0.5, "seed": 7 }), Some("old"));
        assert_eq!(*stage.service.derived.borrow(), [expected]);
        // Its removal is not that of its model.
        let shown: Value =
            serde_json::from_str(&ask(&stage, "/api/show", &json!({ "model": "mine" })).await.1).unwrap();
        assert_eq!((&shown["system"], &shown["details"]["parent_model"]), (&json!("old"), &json!("real")));
        assert!(shown["modelfile"].as_str().unwrap().contains("PARAMETER seed 7\n"), "{shown}");
    });
}

#[test]
fn unsupported_fields_of_a_derived_model_are_rejected_by_name() {
    on_stage(|stage| async move {
        stage.service.derives.set(true);
        for (more, words) in [
            (json!({ "template": "{{ .Prompt }}" }), "`template` is not supported"),
            (json!({ "messages": [{ "role": "user", "content": "hi" }] }), "`messages` is not supported"),
            (json!({ "quantize": "q4_K_M" }), "`quantize` is not supported"),
            (json!({ "adapters": { "a": "sha256:0" } }), "`adapters` is not supported"),
            (json!({ "made_up": 1 }), "`made_up` is not supported"),
            (json!({ "parameters": { "num_gpu": 9 } }), "`parameters.num_gpu` = 9 is not supported"),
            (json!({ "parameters": { "num_ctx": 8192 } }), "`parameters.num_ctx` = 8192 is not supported"),
            (json!({ "parameters": { "top_k": "x" } }), "option \"top_k\" must be of type integer"),
            (json!({ "parameters": 5 }), "not a valid request of this API"),
            (json!({ "system": ["x"] }), "not a valid request of this API"),
            (json!({ "system": "x".repeat(2 << 20) }), "1 MiB"),
        ] {
            let mut body = json!({ "model": "mine", "from": "real" });
            body.as_object_mut().unwrap().extend(object(more));
            let (status, text) = ask(&stage, "/api/create", &body).await;
            let error: Value = serde_json::from_str(&text).unwrap();
            let error = error["error"].as_str().unwrap_or_default();
            assert!((400..500).contains(&status) && error.contains(words), "{words}: {status} {error}");
        }
        // Nothing is made of files alone.
        let files = json!({ "model": "mine", "files": { "m.gguf": "sha256:0" } });
        assert_eq!(ask(&stage, "/api/create", &files).await.0, 501);
        assert!(stage.service.derived.borrow().is_empty());
    });
}
