//! Tests of the three configuration formats: the same model is served from each, and errors are reported.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http::{chat, get, open_with, post, read};

/// The names that `/v1/models` lists.
fn listed(daemon: &Daemon) -> Vec<String> {
    let models = get(daemon.address, "/v1/models").json();
    let models = models["data"].as_array().expect("a list").iter();
    models.filter_map(|model| model["id"].as_str().map(str::to_owned)).collect()
}

fn answers(daemon: &Daemon, name: &str) -> Value {
    let answer = chat(daemon.address, name);
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    answer.json()
}

fn view(daemon: &Daemon, name: &str) -> Value {
    let status = daemon.status();
    let mut models = status["models"].as_array().expect("models").iter();
    models.find(|model| model["name"] == name).unwrap_or_else(|| panic!("{name} in {status}")).clone()
}

/// Runs `plimsoll serve` on a file that it refuses; what it says and its status.
fn refused(name: &str, text: &str) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join(name);
    std::fs::write(&file, text).expect("the folder can be written");
    refused_file(&file)
}

fn refused_file(file: &Path) -> (String, Option<i32>) {
    let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("serve")
        .arg(file)
        .args(["--listen", "127.0.0.1:0", "--card", "name=host,kind=host,total=1GiB"])
        .output()
        .expect("plimsoll runs");
    assert!(run.stdout.is_empty(), "it serves");
    (String::from_utf8_lossy(&run.stderr).into_owned(), run.status.code())
}

#[test]
fn several_cards_of_one_name_are_described_in_one_word() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("a.toml");
    let checked = |text: &str, cards: &[&str]| {
        std::fs::write(&config, format!("{text}[models.a]\ncmd = '/bin/true ${{PORT}}'\nmemory = '1GiB'\n"))
            .unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["serve", "--check"]).arg(&config);
        command.args(cards.iter().flat_map(|card| ["--card", card]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|line| line.starts_with("card ") && line.contains("3060")).count()
    };
    assert_eq!(checked("", &["2x3060"]), 2);
    assert_eq!(checked("", &["2x3060", "3060"]), 3);
    assert_eq!(checked("[serve]\ncards = ['2x3060']\n", &[]), 2);
}

#[test]
fn a_preset_of_llama_server_is_served_as_it_is() {
    let daemon = Setup::new()
        .named("models.ini")
        .config(&format!(
            "version = 1\n\
             ;plimsoll: engine = {}\n\
             [*]\nctx-size = 2048\n;plimsoll: memory = 100MiB\n\
             [alpha]\nmodel = /dev/null\nalias = first,erste\nload-on-startup = true\n\
             [beta]\nhf-repo = user/beta\n;plimsoll: unlisted = on\n;plimsoll: pin = on\n\
             [gamma]\nm = /dev/null\nc = 512\nmodels-max = 1\n",
            fake_engine().display()
        ))
        .start();
    until("alpha is loaded at start", || daemon.running() == ["alpha"]);
    assert_eq!(listed(&daemon), ["alpha", "gamma"]);
    assert_eq!(answers(&daemon, "erste")["model"], "alpha");
    answers(&daemon, "beta");
    assert_eq!(view(&daemon, "beta")["pinned"], true);
    answers(&daemon, "gamma");
    let arguments = get(daemon.address, "/v1/models/gamma").json()["status"]["args"].to_string();
    assert!(arguments.contains(r#""--ctx-size","512""#), "{arguments}");
    let place = format!("{}:17: `models-max` has no effect", daemon.config_file().display());
    daemon.reported(&place);
}

#[test]
fn llama_swaps_yaml_is_served_with_its_macros_groups_and_hooks() {
    let daemon = Setup::new()
        .named("config.yaml")
        .config(&format!(
            "healthCheckTimeout: 30\n\
             logLevel: debug\n\
             macros:\n  server: {} --port ${{PORT}}\n\
             models:\n\
             \x20 alpha:\n    cmd: ${{server}} --alias ${{MODEL_ID}}\n    aliases: [first]\n    ttl: 1\n\
             \x20 beta:\n    cmd: ${{server}}\n    unlisted: true\n    useModelName: inner\n    checkEndpoint: /v1/health\n\
             \x20 gamma:\n    cmd: ${{server}} --alias gamma\n    checkEndpoint: none\n    concurrencyLimit: 1\n\
             groups:\n  g:\n    persistent: true\n    swap: false\n    members: [gamma]\n\
             hooks:\n  on_startup:\n    preload: [first]\n",
            fake_engine().display()
        ))
        .start();
    until("alpha is preloaded", || daemon.running() == ["alpha"]);
    until("its ttl ends it", || daemon.running().is_empty());
    daemon.reported("stop alpha");
    daemon.reported("which is its ttl (time to live)");
    assert_eq!(listed(&daemon), ["alpha", "gamma"]);
    answers(&daemon, "first");
    answers(&daemon, "beta");
    assert_eq!(view(&daemon, "gamma")["pinned"], true);
    daemon.reported("config.yaml:2: `logLevel` has no effect");
}

#[test]
fn a_command_that_stops_a_model_is_run_with_its_process_id() {
    let daemon = Setup::new()
        .named("config.yaml")
        .config(&format!(
            "models:\n  alpha:\n    cmd: {} --port ${{PORT}}\n    cmdStop: /bin/sh -c 'kill -INT ${{PID}}'\n",
            fake_engine().display()
        ))
        .start();
    answers(&daemon, "alpha");
    assert_eq!(post(daemon.address, "/models/unload", &json!({"model": "alpha"})).status, 200);
    until("it is gone", || daemon.engines().is_empty());
}

#[test]
fn an_engine_on_a_port_of_its_own_is_asked_there() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("an address").port()
    };
    let daemon = Setup::new()
        .config(&format!(
            "[models.alpha]\ncmd = \"{} --port {port} --alias alpha\"\nproxy = \"http://localhost:{port}\"\nmemory = \"1MiB\"\n",
            fake_engine().display()
        ))
        .start();
    let answer = chat(daemon.address, "alpha");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let from = answer.header("x-fake-engine").expect("the engine answered");
    assert!(from.contains(&format!("port={port}")), "{from}");
}

#[test]
fn model_without_a_memory_need_runs_alone() {
    let daemon = Setup::new()
        .model("known", "100MiB", "", "")
        .config(&format!("[models.unknown]\ncmd = \"{} --port ${{PORT}}\"\n", fake_engine().display()))
        .start();
    until("the operator is told", || {
        let talk = daemon.talk();
        talk.contains("model known    100 MiB declared")
            && talk.contains("model unknown  memory need unknown")
    });
    answers(&daemon, "known");
    assert_eq!(view(&daemon, "known")["alone"], false);
    answers(&daemon, "unknown");
    assert_eq!(view(&daemon, "unknown")["alone"], true);
    assert_eq!(daemon.running(), ["unknown"]);
}

#[test]
fn relative_models_are_those_beside_the_daemon_as_with_llama_server() {
    let daemon = Setup::new()
        .config("[models.a]\nmodel = 'tests/runner.rs'\nmemory = '1MiB'\n")
        .argument("--engine")
        .argument(&fake_engine().to_string_lossy())
        .start();
    answers(&daemon, "a");
    let arguments = get(daemon.address, "/v1/models/a").json()["status"]["args"].to_string();
    assert!(arguments.contains(r#""--model","tests/runner.rs""#), "{arguments}");
}

#[test]
fn a_preload_takes_what_is_free_and_the_rest_is_reported() {
    let daemon = Setup::new()
        .model("a", "600MiB", "", "preload = true")
        .model("b", "600MiB", "", "preload = true")
        .start();
    let reported = |name: &str| {
        let words = format!("{name} was not preloaded: it does not fit beside the loaded models");
        daemon.talk().contains(&words)
    };
    until("one is told", || reported("a") || reported("b"));
    // Whoever is looked at first takes what is free; they are looked at side by side.
    let (up, left) = if reported("b") { ("a", "b") } else { ("b", "a") };
    until("the other is up", || daemon.running() == [up]);
    answers(&daemon, left);
}

#[test]
fn files_that_are_wrong_end_with_2_and_name_the_line() {
    for (name, text, expected) in [
        (
            "a.ini",
            "[a]\nmodel = x\nctx-sze = 1\n",
            "a.ini:3: unknown key `ctx-sze` in [a]; did you mean `ctx-size`",
        ),
        ("a.ini", "[a\nmodel = x\n", "a.ini:1: "),
        (
            "a.ini",
            "[a]\nctx-size = 1\n",
            "a.ini:1: the section of model `a` names no model file; add `model =",
        ),
        (
            "a.yaml",
            "models:\n  a:\n    cmd: ${nope}\n",
            "a.yaml:3: macro `nope`: there is no such macro; declare the macro",
        ),
        ("a.yaml", "models: [\n", "a.yaml:"),
        (
            "a.toml",
            "[models.a]\ncmd = 'x ${PORT}'\nmemry = '1GiB'\n",
            "a.toml:3: unknown key `memry` in the file; did you mean `memory`",
        ),
        ("a.toml", "[models.a\n", "a.toml:1: "),
        (
            "a.toml",
            "[models.a]\ncmd = 'x ${PORT}'\ncards = ['H200']\n",
            "a.toml:1: model `a`: there is no card `H200`; the cards are 0 host",
        ),
        (
            "a.toml",
            "[serve]\nlistenn = 1\n[models.a]\ncmd = 'x ${PORT}'\n[models.b]\ncmd = 'x ${PORT}'\naliases = ['a']\n",
            "a.toml:5: the name `a` is already used by `a` at",
        ),
        (
            "a.json",
            "{}",
            "a.json: the format of the file is not known; its name must end in .ini, .yaml, .yml or .toml",
        ),
        ("plain", "", "plain: the format of the file is not known"),
        ("a.ini", "\u{feff}[a]\n", "the file starts with a byte order mark"),
    ] {
        let (stated, status) = refused(name, text);
        assert_eq!(status, Some(2), "{name} {text:?}: {stated}");
        assert!(stated.contains(expected), "{expected:?} in {stated:?}");
    }
    let (stated, status) = refused_file(Path::new("/no/such/file.toml"));
    assert_eq!(status, Some(2), "{stated}");
    assert!(stated.contains("cannot read the configuration /no/such/file.toml"), "{stated}");
}

#[test]
fn a_file_without_models_is_served_and_reported() {
    let daemon = Setup::new().start();
    until("the operator is told", || {
        daemon.talk().contains("there is no model, so every request is refused")
    });
    assert_eq!(get(daemon.address, "/v1/models").json()["data"], json!([]));
    assert_eq!(chat(daemon.address, "any").status, 404);
}

#[test]
fn command_line_settings_are_read_from_the_file_and_change_at_a_restart() {
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let keys = |reserve: &str| {
        format!(
            "[serve]\ncards = ['name=own,kind=host,total=1GiB']\nreserve = '{reserve}'\nlog-file = '{}'\n\
             allow-origins = ['https://chat.example']\nask = '0'\n[serve.guard]\nmode = 'off'\n",
            log.path().display()
        )
    };
    let models = "[engine]\ncommand = 'ENGINE'\n[models.a]\nmodel = '/dev/null'\nmemory = '100MiB'\n"
        .replace("ENGINE", &fake_engine().display().to_string());
    let daemon = Setup::with_cards(&[]).config(&(keys("24MiB") + &models)).start();
    daemon.reported("card  own  1000 MiB available of 1024 MiB");
    assert_eq!(chat(daemon.address, "a").status, 200);
    let talk = || std::fs::read_to_string(log.path()).unwrap_or_default();
    until("the engine's output is in the file", || !talk().is_empty());
    let page = "Origin: https://chat.example\r\n";
    let answer = read(&open_with(daemon.address, "GET", "/v1/models", page, None));
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://chat.example"));

    std::fs::write(daemon.config_file(), keys("32MiB") + &models).expect("the file can be written");
    daemon.signal("HUP");
    daemon.reported("`reserve` under [serve] has changed; restart the server to apply it");
    daemon.reported("read again, 0 models changed");
    assert!(!daemon.talk().contains("`cards` under"), "{}", daemon.talk());
    std::fs::write(daemon.config_file(), keys("32") + &models).expect("the file can be written");
    daemon.signal("HUP");
    daemon.reported(
        "plimsoll.toml:3: `32` is a number of bytes; did you mean 32GiB?; the old configuration remains",
    );
}
