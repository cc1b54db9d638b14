//! Tests of a real llama.cpp whose planned memory grows with depth (tokens in use).
//!
//! Without flash attention, its run-time pool holds a product as wide as the cache. The card is only
//! described, and the engine computes on the CPU. The tests show that requests are counted by the engine's
//! own template and tokenizer, admitted by the plan's arithmetic, and all answered or refused accordingly.

use std::thread;

use serde_json::{Value, json};

use crate::child::{plimsoll, program};
use crate::daemon::{Daemon, Setup};
use crate::http::{Answer, post};

const FLAGS: &str = "--threads 1 -c 8192 -np 4 --kv-unified -fa off";
const CONTEXT: u64 = 8192;
/// The depth for which the card has memory, but for the granule of 2 MiB by which a pool grows: at 4 KiB a
/// token, `GRANULE` tokens.
const DEPTH: u64 = 6144;
const GRANULE: u64 = 512;

/// A daemon whose card has memory for three quarters of the context.
fn limited() -> (Daemon, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny.gguf");
    plimsoll_specimens::write("tiny", &model, &plimsoll_specimens::Changes::default()).unwrap();
    let plan = plimsoll()
        .args(["plan", "--json", "--engine", "llama.cpp@11549"])
        .args(["--card", "name=card,total=24GiB,cc=8.6", "--", "-m"])
        .arg(&model)
        .args(FLAGS.split_whitespace())
        .output()
        .unwrap();
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let (peak, growth) = (number(&plan["cards"][0]["peak"]), number(&plan["growth"]["pool"]));
    assert_eq!(growth * GRANULE, 2 << 20);
    let total = peak - growth * (CONTEXT - DEPTH);
    let config = format!(
        "[models.tiny]\nmodel = \"{}\"\nflags = \"{FLAGS}\"\ntoo-large = \"limit-depth\"\n",
        model.display()
    );
    let card = format!("name=card,total={total}B,cc=8.6");
    let daemon = Setup::with_cards(&[&card])
        .config(&config)
        .argument("--engine")
        .argument(&program().display().to_string())
        .start();
    (daemon, folder)
}

fn body(words: usize) -> Value {
    let text = "ship ".repeat(words);
    json!({"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": text}]})
}

fn ask(daemon: &Daemon, words: usize) -> Answer {
    post(daemon.address, "/v1/chat/completions", &body(words))
}

/// What the engine itself counts.
fn counted(daemon: &Daemon, words: usize) -> u64 {
    let prompt = post(daemon.address, "/apply-template", &body(words)).json()["prompt"].clone();
    let content = json!({"model": "tiny", "content": prompt, "add_special": true, "parse_special": true});
    let tokens = post(daemon.address, "/tokenize", &content).json()["tokens"].clone();
    u64::try_from(tokens.as_array().unwrap().len()).unwrap()
}

/// Words of a prompt of about so many tokens.
fn words(daemon: &Daemon, tokens: u64) -> usize {
    let (few, many) = (counted(daemon, 10), counted(daemon, 110));
    let words = tokens.saturating_sub(few) * 100 / (many - few).max(1);
    usize::try_from(words).unwrap()
}

fn depth(daemon: &Daemon) -> Value {
    daemon.status()["models"][0]["depth"].clone()
}

#[test]
fn prompts_that_together_pass_the_budget_are_counted_by_the_engine_and_all_answered() {
    let (daemon, _folder) = limited();
    let first = ask(&daemon, 10);
    assert_eq!(first.status, 200, "{}", first.text());
    let covered = depth(&daemon)["covered"].as_u64().unwrap();
    assert!(covered > DEPTH / 2 && covered < DEPTH + GRANULE, "{covered}");
    let engines = daemon.engines();
    let words = words(&daemon, 1500);
    let tokens = counted(&daemon, words);
    assert!(8 * tokens > CONTEXT, "{tokens}");
    let answers: Vec<Answer> = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(&daemon, words))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["usage"]["prompt_tokens"].as_u64(), Some(tokens));
    }
    let depth = depth(&daemon);
    let admitted = depth["admitted"].as_u64().unwrap();
    assert!(admitted >= tokens && admitted <= depth["covered"].as_u64().unwrap(), "{depth}");
    assert_eq!(daemon.engines(), engines, "no engine was lost or started anew");
}

#[test]
fn a_prompt_that_is_too_deep_is_refused_with_the_engines_own_count() {
    let (daemon, _folder) = limited();
    assert_eq!(ask(&daemon, 10).status, 200);
    let words = words(&daemon, 7000);
    let tokens = counted(&daemon, words);
    let answer = ask(&daemon, words);
    assert_eq!(answer.status, 413, "{}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "too_deep");
    let requested = &error["reason"]["because"][0]["facts"];
    assert_eq!(requested["prompt"].as_u64(), Some(tokens), "{error}");
    assert_eq!(requested["answer"].as_u64(), Some(4), "{error}");
}
