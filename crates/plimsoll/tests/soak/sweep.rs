//! Tests of `plimsoll measure sweep`: memory and speed by prompt length, compared with the plan.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output};

use serde_json::Value;

use super::card::Card;
use super::engine::Engine;

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

/// Passes connections on to an engine, and kills a process before the first long prompt.
fn killer(engine: &Engine, mut victim: Child) -> String {
    let to = engine.url().trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut server = TcpStream::connect(&to).unwrap();
            let (mut back, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            let mut buffer = vec![0; 1 << 20];
            while let Ok(read @ 1..) = client.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..read]).to_ascii_lowercase();
                let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                if length.is_some_and(|length| length.trim().parse::<u64>().unwrap() > 10_000) {
                    victim.kill().unwrap();
                    victim.wait().unwrap();
                }
                server.write_all(&buffer[..read]).unwrap();
            }
            let _ = server.shutdown(std::net::Shutdown::Write);
        }
    });
    here
}

#[test]
fn rows_during_which_the_model_was_stopped_are_marked_and_no_verdict() {
    let engine = Engine::start("events=4");
    let victim = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = victim.id().to_string();
    let url = killer(&engine, victim);
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sweep", &url, "--depths", "256,8k", "--pid", &pid])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let marked: Vec<bool> = text.lines().skip(1).take(2).map(|row| row.ends_with("  disturbed")).collect();
    assert_eq!(marked, [false, true], "{text}");
    assert!(text.contains("1 of 2 rows is disturbed"), "{text}");
    assert!(
        text.contains("the model was stopped meanwhile") && text.contains("`plimsoll pin tiny`"),
        "{text}"
    );
}

#[test]
fn a_sweep_shows_growth_per_token_and_speed_at_each_depth() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("a.svg");
    let engine = Engine::start("events=16");
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
