//! Tests of clients of other APIs than OpenAI's: Ollama's and Anthropic's own libraries, and the exchanges of
//! Home Assistant and VS Code.

use std::process::Command;

use serde_json::{Value, json};

use super::fleet::{Fleet, Member, three};
use super::venv;
use crate::daemon::until;
use crate::http;

/// One that chats and one that embeds, with room for both.
fn fleet() -> Fleet {
    let [alpha, _, gamma] = three();
    let fleet = Fleet::start(&[alpha, gamma], "", |needs| needs.iter().sum::<u64>() * 2);
    until("the models' files were read", || get(&fleet, "/v1/models/gamma")["memory"]["planned"].is_u64());
    fleet
}

fn clients(fleet: &Fleet, act: &str) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_engine/dialects.py");
    let base = format!("http://{}", fleet.daemon.address);
    venv::output(Command::new(venv::python()).args(["-I", script, &base, act]))
}

fn get(fleet: &Fleet, path: &str) -> Value {
    http::get(fleet.daemon.address, path).json()
}

#[test]
fn ollamas_library_lists_chats_generates_embeds_loads_and_unloads() {
    let fleet = fleet();
    let seen = clients(&fleet, "ollama");
    assert_eq!(seen["models"], json!(["alpha", "gamma"]));
    assert_eq!(seen["show"]["modelinfo"]["llama.context_length"], 1024);
    assert_eq!(seen["show"]["capabilities"][0], "completion");
    assert_eq!((&seen["chat"]["model"], &seen["chat"]["done"]), (&json!("alpha:latest"), &json!(true)));
    assert_eq!(seen["stream"]["text"], seen["chat"]["message"]["content"], "the same at temperature 0");
    let last = &seen["stream"]["last"];
    assert_eq!((&last["done_reason"], &last["eval_count"]), (&json!("length"), &json!(8)));
    assert!(
        last["prompt_eval_count"].as_u64() > Some(0) && last["eval_duration"].as_u64() > Some(0),
        "{last}"
    );
    assert!(last["total_duration"].as_u64() >= last["load_duration"].as_u64(), "{last}");
    let [running] = seen["ps"].as_array().unwrap().as_slice() else { panic!("{}", seen["ps"]) };
    assert_eq!((&running["model"], &running["context_length"]), (&json!("alpha"), &json!(1024)));
    assert!(running["size"].as_u64() > Some(0) && running["size_vram"] == 0, "on the host: {running}");
    assert_eq!(seen["generate"]["eval_count"], 8);
    assert_eq!((&seen["raw"]["last"]["done"], &seen["raw"]["last"]["eval_count"]), (&json!(true), &json!(8)));
    assert_eq!((&seen["embed"], &seen["embeddings"]), (&json!([128, 128]), &json!(128)));
    assert!(["stop", "length"].contains(&seen["tools"].as_str().unwrap()), "{}", seen["tools"]);
    assert_eq!(seen["pull"], json!(["success"]));
    let statuses: Vec<_> = (0..6).map(|at| seen["errors"][at][0].as_u64().unwrap()).collect();
    assert_eq!(statuses, [404, 404, 501, 404, 400, 400], "{}", seen["errors"]);
    assert!((0..6).all(|at| seen["errors"][at][1].as_str().is_some_and(|text| !text.starts_with('{'))));
    assert_eq!((&seen["unload"], &seen["load"]), (&json!("unload"), &json!("load")));
    let loads = http::get(fleet.daemon.address, "/metrics").text();
    assert!(loads.contains("plimsoll_loads_total{model=\"alpha\"} 2"), "unloaded in between:\n{loads}");
}

#[test]
fn anthropics_library_gets_messages_counts_and_errors_in_its_shape() {
    let fleet = fleet();
    let seen = clients(&fleet, "anthropic");
    assert!(
        !seen["text"].as_str().unwrap().is_empty() && !seen["streamed"].as_str().unwrap().is_empty(),
        "{seen}"
    );
    assert!(seen["count"].as_u64() > Some(0) && seen["output_tokens"].as_u64() > Some(0), "{seen}");
    assert_eq!(seen["error"]["type"], "error");
    assert_eq!(seen["error"]["error"]["type"], "not_found_error");
}

#[test]
fn home_assistant_and_vs_code_find_the_models_and_talk_to_one() {
    let fleet = fleet();
    let seen = clients(&fleet, "copilot");
    let expected = json!({"name": "tiny", "input": 512, "output": 512, "vision": false, "tools": false});
    assert_eq!((&seen["known"]["alpha"], &seen["ends"]), (&expected, &json!(true)));
    let seen = clients(&fleet, "home_assistant");
    assert_eq!(seen["models"], json!(["alpha", "gamma"]));
    assert_eq!((&seen["roles"], &seen["done"]), (&json!(["assistant"]), &json!(true)));
    assert_eq!(seen["pulled"], "success");
    // It asks that the model stays for good; another model may still have the memory.
    let expires = seen["ps"][0]["expires_at"].as_str().unwrap();
    assert!(expires > "2100", "{expires}");
    assert_eq!(get(&fleet, "/api/status")["models"][0]["pinned"], false);
}

#[test]
fn context_abilities_and_memory_are_listed_before_a_load_and_agree_with_the_engine() {
    let fleet = fleet();
    let planned = get(&fleet, "/v1/models/alpha");
    assert_eq!(planned["status"]["value"], "unloaded");
    assert_eq!((&planned["context_length"], &planned["max_model_len"]), (&json!(1024), &json!(1024)));
    assert_eq!(planned["capabilities"], json!(["completion"]));
    assert_eq!(get(&fleet, "/v1/models/gamma")["capabilities"], json!(["embedding"]));
    let studio = get(&fleet, "/api/v0/models/gamma");
    assert_eq!((&studio["type"], &studio["state"]), (&json!("embeddings"), &json!("not-loaded")));
    super::fleet::chat(fleet.daemon.address, "alpha");
    assert_eq!(get(&fleet, "/v1/models/alpha")["context_length"], 1024, "as the engine says");
    let studio = get(&fleet, "/api/v0/models/alpha");
    assert_eq!((&studio["state"], &studio["loaded_context_length"]), (&json!("loaded"), &json!(1024)));
}

/// Slow to install, so it is no part of CI.
#[test]
fn long_litellm_langchain_llm_and_aider_work_against_two_models() {
    let [alpha, _, gamma] = three();
    // Aider sends some thousands of tokens of its own.
    let alpha = Member { flags: alpha.flags.replace("-c 2048", "-c 65536"), ..alpha };
    let fleet = Fleet::start(&[alpha, gamma], "", |needs| needs.iter().sum::<u64>() * 2);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_engine/other_clients.py");
    let base = format!("http://{}", fleet.daemon.address);
    for (act, environment) in [
        ("langchain", &venv::LANGCHAIN),
        ("llm", &venv::LANGCHAIN),
        ("litellm", &venv::LITELLM),
        ("aider", &venv::AIDER),
    ] {
        let seen = venv::output(Command::new(environment.python()).args(["-I", script, &base, act]));
        for (call, answer) in seen.as_object().unwrap() {
            assert!(answer.as_bool() == Some(true), "{act}, {call}: {answer}");
        }
    }
}
