//! Tests of `plimsoll sweep`: memory and speed over prompt depth, compared with the plan.

use std::process::{Command, Output};

use serde_json::Value;

use crate::card::Card;
use crate::engine::Engine;

/// A model whose plan is known, and what its engine takes of the card: more at depth than was planned.
const TAKES: &str = "cuda=1 vram=67108864 vram_per_token=32768 events=4";

fn sweep(card: &Card, engine: &Engine, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sweep", &engine.url(), "--depths", "256,1k"])
        .args(arguments)
        .envs(card.variables())
        .output()
        .expect("plimsoll starts")
}

#[test]
fn each_depth_is_beside_the_plan_of_the_servers_own_flags() {
    let card = Card::new();
    let model = card.path("tiny.gguf");
    plimsoll_specimens::write("tiny", &model, &plimsoll_specimens::Changes::default()).unwrap();
    let engine = Engine::start_with(TAKES, |command| {
        command.envs(card.variables());
        command.arg("--model").arg(&model).args(["--ctx-size", "2048"]);
    });
    let output = sweep(&card, &engine, &["--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let planned = &json["planned"];
    assert_eq!(
        (&planned["context"], &planned["pool_bytes_per_token"]),
        (&2048.into(), &4096.into()),
        "{json:#}"
    );
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{json:#}"));
    let depth = &json["depths"][1];
    let deeper = 2048 - number(&depth["tokens"]);
    assert_eq!(number(&depth["planned"]), number(&planned["peak"]) - 4096 * deeper, "{json:#}");
    let growth = json["growth"].as_array().unwrap();
    let card_row = growth.iter().find(|row| row["figure"] == "card 0 Fake 8G, the server");
    let slope = card_row.unwrap()["bytes_per_token"].as_f64().unwrap();
    assert!((28_000.0..38_000.0).contains(&slope), "{json:#}");

    let output = sweep(&card, &engine, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("plan for the server's flags and llama.cpp, build "), "{text}");
    assert!(text.contains("tokens the server holds ") && text.contains(" than planned"), "{text}");
}

#[test]
fn a_sweep_shows_growth_per_token_and_speed_at_each_depth() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("a.svg");
    let engine = Engine::start("events=4");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sweep", &engine.url(), "--depths", "4k,1k,2k", "--json", "--svg"])
        .arg(&picture)
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let depths: Vec<u64> =
        json["depths"].as_array().unwrap().iter().map(|depth| depth["asked"].as_u64().unwrap()).collect();
    assert_eq!((output.status.code(), depths), (Some(0), vec![1024, 2048, 4096]));
    assert!(json["growth"][0]["bytes_per_token"].is_number(), "{json:#}");
    assert!(json["depths"][0]["answer_per_second"].as_f64().unwrap() > 0.0);
    let drawn = std::fs::read_to_string(picture).unwrap();
    assert!(drawn.contains("prompt speed over depth") && drawn.contains("class=\"dot c0\""));
    let dying = Engine::start("fail=oom_at_depth:2500");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sweep", &dying.url(), "--depths", "1k,8k"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("8192 failed: "), "{output:?}");
}
