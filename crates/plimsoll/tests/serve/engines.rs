//! Tests of engines other than llama-server: their kinds, their memory, and restarts.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::isolation::four_cards;
use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http::chat;

const GIB: u64 = 1 << 30;

/// A section whose command is the fake engine with these flags.
fn section(name: &str, flags: &str, more: &str) -> String {
    let engine = fake_engine();
    format!("[models.{name}]\ncmd = '{} --port ${{PORT}} --alias {name} {flags}'\n{more}\n", engine.display())
}

fn view(daemon: &Daemon, model: &str) -> Value {
    let status = daemon.status();
    let mut models = status["models"].as_array().expect("as the test has made it").iter();
    models.find(|found| found["name"] == model).cloned().expect("as the test has made it")
}

/// Claims of a model on GPUs.
fn claims(daemon: &Daemon, model: &str) -> Vec<u64> {
    let claim = view(daemon, model)["claim"].clone();
    let shares =
        claim.as_array().expect("as the test has made it").iter().filter(|share| share["card"] != "host");
    shares.filter_map(|share| share["bytes"].as_u64()).collect()
}

#[test]
fn a_program_that_takes_a_part_of_each_card_claims_that_and_leaves_the_rest_to_others() {
    let part = |name: &str, flags: &str, more: &str| {
        section(name, &format!("--gpu-memory-utilization {flags}"), &format!("kind = 'vllm'\n{more}"))
    };
    let config = part("small", "0.4", "cards = ['GPU-aaaa']")
        + &part("other", "0.4", "cards = ['GPU-aaaa']")
        + &part("wide", "0.5 --tensor-parallel-size 2", "")
        + &part("five", "0.5 -tp 5", "");
    let daemon = four_cards(Setup::with_cards(&[]).config(&config));
    for model in ["small", "other", "wide"] {
        assert_eq!(chat(daemon.address, model).status, 200, "{model}");
    }
    assert_eq!(daemon.running(), ["other", "small", "wide"]);
    // vLLM's share does not count the context of the driver.
    let context = 550 << 20;
    let part = (24 * GIB).div_euclid(5) * 2 + context;
    assert!(claims(&daemon, "small")[0].abs_diff(part) < 1 << 20, "{:?}", claims(&daemon, "small"));
    assert_eq!(claims(&daemon, "wide"), [12 * GIB + context; 2]);
    let refused = chat(daemon.address, "five");
    assert_eq!(refused.status, 413, "{}", refused.text());
    assert!(refused.text().contains("computes on exactly 5 cards together"), "{}", refused.text());
}

#[test]
fn a_kind_is_ready_when_its_own_path_answers() {
    // The fake engine has this path and not that of ComfyUI.
    let daemon = Setup::new()
        .config(&section("image", "", "kind = 'stable-diffusion'\nmemory = '1MiB'"))
        .config(&section("never", "", "kind = 'comfyui'\nmemory = '1MiB'\nload-timeout = '1s'"))
        .start();
    assert_eq!(chat(daemon.address, "image").status, 200);
    assert_eq!(chat(daemon.address, "never").status, 503);
}

#[test]
fn a_measured_need_outlives_the_daemon_and_holds_for_the_same_command_only() {
    let config = section("unknown", "", "");
    let daemon = Setup::new().config(&config).start();
    assert_eq!(chat(daemon.address, "unknown").status, 200);
    let state = daemon.config.parent().unwrap().join("plimsoll");
    let kept = || {
        let files = std::fs::read_dir(&state).into_iter().flatten().flatten();
        files.map(|file| file.file_name().into_string().unwrap()).any(|name| name.starts_with("needs-"))
    };
    until("the need is kept", kept);
    let check = |config: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["serve", "--check", "--card", "name=host,kind=host,total=1GiB"])
            .arg(config)
            .env("XDG_STATE_HOME", config.parent().unwrap())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    assert!(check(&daemon.config).contains("as measured before"), "{}", check(&daemon.config));
    std::fs::write(&daemon.config, section("unknown", "--other 1", "")).unwrap();
    assert!(check(&daemon.config).contains("memory need unknown"), "{}", check(&daemon.config));
}

#[test]
fn an_engine_starts_anew_after_its_requests_and_no_client_sees_it() {
    let daemon = Setup::new().model("worn", "100MiB", "", "max-requests = 3").start();
    for _ in 0..7 {
        let answer = chat(daemon.address, "worn");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(daemon.talk().matches("INFO load worn").count(), 3);
    daemon.reported("stop worn (idle 0 s): the engine has served 3 requests, its `max-requests`");
}
