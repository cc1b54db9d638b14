//! Tests of admission by tokens in use (depth): an engine whose memory grows with its prompts never gets more
//! requests than its memory allows.
//!
//! The fake engine claims to be a llama.cpp from before PR 23907, whose pool copies a quantised cache as deep
//! as requests reach. Its card is a file with as many bytes as the test allows; one byte more ends it with
//! ggml's error.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::built::built;
use crate::daemon::{Daemon, Setup, fake_engine};
use crate::http::{Answer, chat, get, post};

const MIB: u64 = 1 << 20;
/// Bytes that a token of depth adds on this model: its keys and values in f16, of one layer.
const GROWTH: u64 = 4096;
const CONTEXT: u64 = 65_536;
const FLAGS: &str = "-c 65536 -np 4 -ctk q8_0 -ctv q8_0 -fa on -ngl all";

/// A model's file, an engine for it, and what a plan says of them.
struct Yard {
    folder: TempDir,
    engine: PathBuf,
    /// What the model takes at full depth.
    peak: u64,
}

impl Yard {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let model = folder.path().join("l8.gguf");
        plimsoll_specimens::write("l8", &model, &plimsoll_specimens::Changes::default())
            .expect("the folder is ours");
        let engine = folder.path().join("llama-server");
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in\n--version) echo 'version: 8799 (abc)';;\n--help) echo usage;;\n*) exec '{}' \"$@\";;\nesac\n",
            fake_engine().display()
        );
        std::fs::write(&engine, script).expect("the folder can be written");
        let runnable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&engine, runnable).expect("it is ours");
        let plan = run(Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["plan", "--json", "--engine", "llama.cpp@8799"])
            .args(["--card", "name=card,total=48GiB,cc=8.6", "--", "-m"])
            .arg(&model)
            .args(FLAGS.split_whitespace()));
        let plan: Value = serde_json::from_slice(&plan).expect("a plan");
        assert_eq!(plan["growth"]["pool"], GROWTH);
        Self { peak: plan["cards"][0]["peak"].as_u64().expect("a number"), folder, engine }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What the model takes once it has been so deep.
    fn at(&self, depth: u64) -> u64 {
        self.peak - GROWTH * (CONTEXT - depth)
    }

    /// A section for the model, whose engine lives on a card of `total` bytes and answers after `delay`
    /// milliseconds.
    fn section(&self, name: &str, total: u64, delay: u64, more: &str) -> String {
        let file = self.path().join("card");
        let script = format!(
            "delay_ms={delay} slots=4 shared_pool=1 file={} vram_total={total} vram={} vram_per_token={GROWTH}",
            file.display(),
            self.at(0),
        );
        self.scripted(name, &script, more)
    }

    fn scripted(&self, name: &str, script: &str, more: &str) -> String {
        let (model, engine) = (self.path().join("l8.gguf"), &self.engine);
        format!(
            "[models.{name}]\nmodel = \"{}\"\nflags = \"{FLAGS}\"\nprogram = \"{}\"\n\
             guard = {{ mode = \"off\" }}\nenv = {{ PLIMSOLL_FAKE_ENGINE = \"{script}\" }}\n{more}\n",
            model.display(),
            engine.display()
        )
    }

    /// A daemon with one card of `total` bytes.
    fn serve(&self, total: u64, config: &str) -> Daemon {
        self.setup(total, config).start()
    }

    fn setup(&self, total: u64, config: &str) -> Setup {
        let card = json!([{"uuid": "GPU-aaaa", "name": "Fake", "total": total, "free": total, "cc": [8, 6], "pci": "00000000:01:00.0"}]);
        Setup::with_cards(&[])
            .argument("--reserve")
            .argument("0")
            .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
            .variable("PLIMSOLL_FAKE_NVML_CARDS", &card.to_string())
            .config(config)
    }
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it runs");
    let stated = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stated}");
    output.stdout
}

/// A chat of about so many tokens, as the double counts them.
fn ask(daemon: &Daemon, model: &str, tokens: u64) -> Answer {
    let text = "ship".repeat(usize::try_from(tokens).expect("few"));
    let body = json!({"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": text}]});
    post(daemon.address, "/v1/chat/completions", &body)
}

fn at_once(daemon: &Daemon, model: &str, tokens: &[u64]) -> Vec<Answer> {
    thread::scope(|scope| {
        let clients: Vec<_> =
            tokens.iter().map(|tokens| scope.spawn(|| ask(daemon, model, *tokens))).collect();
        let answers = clients.into_iter().map(|client| client.join().expect("a client"));
        answers.collect()
    })
}

fn process(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["fake"]["pid"].as_u64().expect("a process")
}

fn depth(daemon: &Daemon, name: &str) -> Value {
    let status = daemon.status();
    let mut models = status["models"].as_array().expect("models").iter();
    let model = models.find(|model| model["name"] == name).expect("it is there");
    model["depth"].clone()
}

const LIMITED: &str = "too-large = \"limit-depth\"";
/// Three of these fit into half of the depth at once, and a fourth does not.
const EIGHT: [u64; 8] = [9000; 8];

#[test]
fn eight_clients_whose_prompts_together_pass_the_budget_are_all_answered_by_one_engine() {
    let yard = Yard::new();
    let total = yard.at(CONTEXT / 2);
    let daemon = yard.serve(total, &yard.section("deep", total, 300, LIMITED));
    let answers = at_once(&daemon, "deep", &EIGHT);
    let engines: Vec<u64> = answers.iter().map(process).collect();
    assert!(engines.iter().all(|pid| *pid == engines[0]), "{engines:?}");
    let depth = depth(&daemon, "deep");
    let (admitted, covered) = (depth["admitted"].as_u64().unwrap(), depth["covered"].as_u64().unwrap());
    assert!(admitted >= 2 * 9000 && admitted <= covered, "{depth}");
    assert!(covered <= CONTEXT / 2, "{depth}");
    let metrics = get(daemon.address, "/metrics").text();
    assert!(metrics.contains("plimsoll_depth_covered_tokens{model=\"deep\"}"), "{metrics}");
    assert!(
        metrics.contains("plimsoll_failures_total{model=\"deep\",cause=\"out_of_memory\"} 0"),
        "{metrics}"
    );
}

#[test]
fn the_same_eight_crash_the_engine_where_depth_is_not_asked() {
    let yard = Yard::new();
    let total = yard.at(CONTEXT / 2);
    let unasked = format!("{LIMITED}\ndepth-admission = false");
    let daemon = yard.serve(total, &yard.section("deep", total, 2000, &unasked));
    let answers = at_once(&daemon, "deep", &EIGHT);
    assert!(answers.iter().any(|answer| answer.status != 200));
    daemon.reported("deep: the engine ran out of card memory while serving");
}

#[test]
fn a_depth_that_can_never_be_had_is_refused_at_once_with_the_arithmetic_and_hurts_nobody() {
    let yard = Yard::new();
    let total = yard.at(CONTEXT / 8);
    let daemon = yard.serve(total, &yard.section("deep", total, 0, LIMITED));
    let engine = process(&ask(&daemon, "deep", 1000));
    let answer = ask(&daemon, "deep", 12_000);
    assert_eq!(answer.status, 413, "{}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "too_deep", "{error}");
    let (requested, fits) = (&error["reason"]["facts"]["depth"], &error["reason"]["facts"]["fits"]);
    assert!(requested.as_u64() > Some(12_000) && requested.as_u64() < Some(13_000), "{error}");
    assert!(fits.as_u64() > Some(CONTEXT / 16) && fits.as_u64() <= Some(CONTEXT / 8), "{error}");
    let on_card = &error["reason"]["because"][1]["facts"];
    assert_eq!(on_card["available"].as_u64(), Some(total), "{error}");
    assert!(on_card["need"].as_u64() > Some(total), "{error}");
    assert!(error["hints"].to_string().contains("within"), "{error}");
    assert_eq!(process(&ask(&daemon, "deep", 1000)), engine);
    let endless = json!({"model": "deep", "messages": [{"role": "user", "content": "the ship"}]});
    let answer = post(daemon.address, "/v1/chat/completions", &endless);
    assert_eq!(answer.status, 413, "nothing limits the answer: {}", answer.text());
    assert!(answer.text().contains("max_tokens"), "{}", answer.text());
}

#[test]
fn unused_depth_of_a_model_is_available_to_another_model() {
    let yard = Yard::new();
    let small = 200 * MIB;
    let total = yard.peak + small / 2;
    let daemon = yard
        .setup(total, &yard.section("deep", total, 400, ""))
        .model("small", "200MiB", "", "guard = { mode = \"off\" }")
        .start();
    let deep = process(&ask(&daemon, "deep", 1000));
    let claimed = daemon.claimed();
    assert_eq!(claimed, yard.peak);
    assert_eq!(chat(daemon.address, "small").status, 200);
    assert_eq!(daemon.running(), ["deep", "small"], "nobody had to go");
    assert!(daemon.claimed() <= total);
    assert_eq!(process(&ask(&daemon, "deep", 1000)), deep);
    // What is asked for again is taken back, from whoever is idle.
    let answers = at_once(&daemon, "deep", &[15_000; 4]);
    assert!(answers.iter().all(|answer| process(answer) == deep));
    assert_eq!(daemon.running(), ["deep"]);
    daemon.reported("stop small");
}

#[test]
fn unfitting_model_is_refused_with_a_fitting_context_or_has_its_context_lowered() {
    let yard = Yard::new();
    let total = yard.peak - 1024 * MIB;
    let lowered = yard.scripted("lowered", "", "too-large = \"lower-context\"");
    let config = yard.section("big", total, 0, "") + &lowered;
    let daemon = yard.serve(total, &config);
    daemon.reported("is refused: big would not fit");
    daemon.reported("hint: big: use a context of ");
    daemon.reported("with its context lowered to ");
    let answer = chat(daemon.address, "big");
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert!(answer.json()["error"]["hints"].to_string().contains("-c "), "{}", answer.text());
    assert_eq!(chat(daemon.address, "lowered").status, 200);
    let argv = get(daemon.address, "/upstream/lowered/fake/env").json()["argv"].clone();
    let words: Vec<&str> = argv.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let at = words.iter().rposition(|word| *word == "--ctx-size").expect("it is given");
    let context: u64 = words[at + 1].parse().expect("a number");
    assert!((CONTEXT / 2..CONTEXT).contains(&context), "{words:?}");
    assert!(daemon.claimed() <= total);
}

#[test]
fn a_check_says_what_each_model_takes_and_ends_with_status_1_if_one_does_not_fit() {
    let yard = Yard::new();
    let check = |total: u64| {
        let config = yard.path().join("plimsoll.toml");
        std::fs::write(&config, yard.section("deep", total, 0, "")).expect("the folder can be written");
        let card = format!("name=card,total={total}B,cc=8.6");
        Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("serve")
            .arg(&config)
            .args(["--check", "--card", &card])
            .env("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml"))
            .env("PLIMSOLL_FAKE_NVML_CARDS", "[]")
            .output()
            .expect("plimsoll runs")
    };
    let fits = check(yard.peak);
    let stated = String::from_utf8_lossy(&fits.stdout).into_owned();
    assert_eq!(fits.status.code(), Some(0), "{stated}{}", String::from_utf8_lossy(&fits.stderr));
    assert!(
        stated.contains("are used only when the context is full; until they are free, a long request waits"),
        "{stated}"
    );
    let refused = check(yard.peak - MIB);
    let stated = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{stated}");
    assert!(stated.contains("is refused") && stated.contains("hint: use a context of"), "{stated}");
}

#[test]
fn a_prompt_that_the_context_cannot_hold_is_refused_before_anything_is_stopped_for_it() {
    let yard = Yard::new();
    let total = yard.peak + 100 * MIB;
    let daemon = yard
        .setup(total, &yard.section("deep", total, 0, ""))
        .model("other", "200MiB", "", "guard = { mode = \"off\" }")
        .start();
    assert_eq!(chat(daemon.address, "other").status, 200);
    // Its context is known from then on.
    daemon.reported("model deep");
    let answer = ask(&daemon, "deep", 20_000);
    assert_eq!(answer.status, 400, "{}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "prompt_too_long", "{error}");
    assert!(error["message"].as_str().unwrap_or_default().contains("holds only 16384"), "{error}");
    assert_eq!(daemon.running(), ["other"], "nothing was stopped for it");
    assert_eq!(ask(&daemon, "deep", 1000).status, 200);
    assert_eq!(daemon.running(), ["deep"]);
}

#[test]
fn requests_that_are_unloaded_while_their_depth_is_measured_are_all_answered() {
    let yard = Yard::new();
    let daemon = yard.serve(yard.peak, &yard.section("deep", yard.peak, 0, ""));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(6);
    let going = || std::time::Instant::now() < end;
    let answered: usize = thread::scope(|scope| {
        scope.spawn(|| {
            while going() {
                post(daemon.address, "/models/unload", &json!({ "model": "deep" }));
                thread::sleep(std::time::Duration::from_millis(60));
            }
        });
        let client = || {
            let mut answered = 0;
            while going() {
                // An answer that never comes ends the test by the client's own time-out.
                let status = ask(&daemon, "deep", 1000).status;
                assert!(matches!(status, 200 | 502 | 503), "{status}");
                answered += 1;
            }
            answered
        };
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).sum()
    });
    assert!(answered > 6, "{answered}");
    crate::daemon::until("no request is left", || {
        daemon.status()["models"][0]["in_flight"] == 0 && daemon.status()["models"][0]["queued"] == 0
    });
}
