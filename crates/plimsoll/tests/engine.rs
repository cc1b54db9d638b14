//! Tests of the installed CPU engine: a real llama.cpp server behind an adapter with llama-server's command
//! line.
//!
//! The first test that needs the engine installs it below the target folder; the others reuse it.

mod model;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::child::{Engine, plimsoll, program};

struct Model {
    path: PathBuf,
    _directory: TempDir,
}

fn model() -> Model {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny.gguf");
    model::write(&path);
    Model { path, _directory: directory }
}

fn chat(tokens: u32) -> Value {
    json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens, "ignore_eos": true})
}

/// Runs the engine to its end, without the control channel.
fn run(flags: &[&str]) -> Output {
    Command::new(program()).args(flags).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_installed_engine_is_found_and_known_by_its_build() {
    let program = program();
    let output = plimsoll().args(["engine", "list", "--json"]).output().unwrap();
    let listing: Value = serde_json::from_slice(&output.stdout).unwrap();
    let engines = listing["engines"].as_array().unwrap();
    let installed = engines.iter().find(|engine| engine["origin"] == "installed").unwrap();
    assert_eq!(Path::new(installed["path"].as_str().unwrap()), program);
    assert_eq!(installed["kind"], "llama.cpp");
    assert_eq!(installed["build"], 11549);
}

/// Whoever installs an engine in a folder that others filled, such as a cloned repository, runs nothing of
/// it.
#[test]
fn an_installation_runs_nothing_of_the_current_folder() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ran = folder.path().join("ran");
    for name in ["venv.py", "pip.py", "ensurepip.py", "xllamacpp.py", "sitecustomize.py"] {
        let text = format!("open({:?}, 'a').write('{name} ')\n", ran.display().to_string());
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let python = folder.path().join("python3");
    std::fs::write(&python, format!("#!/bin/sh\necho python3 >> {}\n", ran.display())).unwrap();
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // The index is not there, so that the installation ends after the venv has run pip.
    let output = plimsoll()
        .args(["engine", "install"])
        .current_dir(folder.path())
        .env("PLIMSOLL_HOME", home.path())
        .env("PATH", format!(".::{}", std::env::var("PATH").unwrap()))
        .env("PYTHONPATH", folder.path())
        .envs([("PIP_INDEX_URL", "http://127.0.0.1:9/simple"), ("PIP_RETRIES", "0")])
        .output()
        .unwrap();
    let stderr = stderr(&output);
    assert!(stderr.contains("cannot fetch xllamacpp"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&ran).unwrap_or_default(), "", "it ran from the current folder");
}

#[test]
fn loading_is_reported_on_the_control_channel_and_ends_with_ready() {
    let model = model();
    let mut engine = Engine::start(&model.path, &["-c", "512"], &[]);
    let states = engine.states_until_ready();
    assert_eq!(states[0]["state"], "loading");
    assert_eq!(states[0]["payload"]["stages"], json!(["text_model"]));
    let meta = &states.last().unwrap()["payload"]["meta"];
    assert_eq!((&meta["n_ctx"], &meta["n_embd"]), (&json!(512), &json!(64)));
    engine.order_exit();
    assert_eq!(engine.wait().code(), Some(0));
}

#[test]
fn chat_completions_embeddings_and_tokens_are_served() {
    let model = model();
    let engine = Engine::start(&model.path, &["-c", "512", "--embeddings", "--pooling", "mean"], &[]).ready();
    let answer = engine.ask("/v1/chat/completions", &chat(5));
    assert_eq!(answer["usage"]["completion_tokens"], 5);
    let answer = engine.ask("/completion", &json!({"prompt": "a", "n_predict": 3, "ignore_eos": true}));
    assert_eq!(answer["tokens_predicted"], 3);
    let answer = engine.ask("/v1/embeddings", &json!({"input": ["one", "two"]}));
    let embeddings = answer["data"].as_array().unwrap();
    assert_eq!(embeddings.len(), 2);
    assert_eq!(embeddings[0]["embedding"].as_array().unwrap().len(), 64);
    assert_ne!(embeddings[0]["embedding"], embeddings[1]["embedding"]);
    // The word mark U+2581 is three bytes, and each byte a token of its own: id 3 + byte.
    let answer = engine.ask("/tokenize", &json!({"content": "A"}));
    assert_eq!(answer["tokens"], json!([0xE2 + 3, 0x96 + 3, 0x81 + 3, 0x41 + 3]));
}

#[test]
fn a_chat_is_streamed_event_by_event_to_its_end_mark() {
    let model = model();
    let engine = Engine::start(&model.path, &["-c", "512"], &[]).ready();
    let mut request = chat(20);
    request["stream"] = json!(true);
    let (status, body) = engine.post("/v1/chat/completions", "", &request);
    assert_eq!(status, 200);
    let events: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (end, chunks) = events.split_last().unwrap();
    assert_eq!(*end, "[DONE]");
    let last: Value = serde_json::from_str(chunks.last().unwrap()).unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert!(chunks.len() > 2, "{body}");
}

#[test]
fn the_environment_of_llama_server_is_obeyed_key_included() {
    let model = model();
    let environment =
        [("LLAMA_ARG_CTX_SIZE", "1024"), ("LLAMA_API_KEY", "secret"), ("LLAMA_ARG_N_PARALLEL", "1")];
    let engine = Engine::start(&model.path, &[], &environment);
    let states = engine.states_until_ready();
    assert_eq!(states.last().unwrap()["payload"]["meta"]["n_ctx"], 1024);
    assert_eq!(engine.post("/v1/chat/completions", "", &chat(1)).0, 401);
    let (status, _) = engine.post("/v1/chat/completions", "Authorization: Bearer secret\r\n", &chat(1));
    assert_eq!(status, 200);
}

#[test]
fn the_exit_command_is_obeyed_even_while_a_stream_is_open() {
    let model = model();
    let mut engine = Engine::start(&model.path, &["-c", "4096"], &[]).ready();
    let mut request = chat(4000);
    request["stream"] = json!(true);
    let mut stream = engine.send("/v1/chat/completions", "", &request);
    stream.read_exact(&mut [0; 64]).unwrap();
    engine.order_exit();
    assert_eq!(engine.wait().code(), Some(0));
}

#[test]
fn an_engine_whose_parent_is_gone_ends_with_status_one() {
    let model = model();
    let mut engine = Engine::start(&model.path, &["-c", "512"], &[]).ready();
    drop(engine.child.stdin.take());
    assert_eq!(engine.wait().code(), Some(1));
}

#[test]
fn a_polite_signal_ends_a_serving_engine_with_status_zero() {
    let model = model();
    let mut engine = Engine::start(&model.path, &["-c", "512"], &[]).ready();
    // An answer shows that the engine is past its start, where the signal would just kill it.
    engine.ask("/v1/chat/completions", &chat(200));
    let process = rustix::process::Pid::from_child(&engine.child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert_eq!(engine.wait().code(), Some(0));
}

#[test]
fn a_model_that_cannot_be_loaded_ends_the_engine_with_its_own_message() {
    let output = run(&["--port", "0", "--model", "/nowhere/tiny.gguf"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("failed to load model '/nowhere/tiny.gguf'"), "{}", stderr(&output));
}

#[test]
fn a_flag_that_the_engine_does_not_have_is_named() {
    for (flags, message) in [
        (&["--no-such-flag", "1"][..], "error: invalid argument: --no-such-flag"),
        (&["--device", "CUDA0"], "error while handling argument \"--device\": invalid device: CUDA0"),
        (&["--hf-repo", "someone/something"], "error: --hf-repo is not supported by this engine"),
        (&["-c", "512"], "error: --model is missing"),
    ] {
        let output = run(flags);
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        assert!(stderr(&output).contains(message), "{flags:?}: {}", stderr(&output));
    }
}

#[test]
fn a_flag_for_cards_is_taken_with_a_word_that_it_has_no_effect() {
    let output = run(&["--port", "0", "--model", "/nowhere/tiny.gguf", "--gpu-layers", "99"]);
    assert!(stderr(&output).contains("--gpu-layers option will be ignored"), "{}", stderr(&output));
}
