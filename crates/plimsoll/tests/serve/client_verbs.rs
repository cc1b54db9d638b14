//! Tests of `plimsoll ps`, `load`, `unload`, `reload` and `logs` against a running server.

use std::process::{Command, Output};

use serde_json::Value;

use crate::daemon::{Daemon, Setup, until};

fn plimsoll(daemon: &Daemon, key: &str, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(words)
        .env("PLIMSOLL_URL", format!("http://{}/v1", daemon.address))
        .env("PLIMSOLL_API_KEY", key)
        .output()
        .expect("plimsoll starts")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn failed(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn models_are_listed_loaded_and_unloaded_from_a_shell() {
    let daemon = Setup::new().model("alpha-2", "612MiB", "", "").model("beta", "200MiB", "", "").start();
    let list = || printed(&plimsoll(&daemon, "", &["ps"]));
    assert!(list().contains("alpha-2  unloaded"), "{}", list());
    printed(&plimsoll(&daemon, "", &["load", "alpha-2"]));
    until("alpha is ready", || list().contains("ready  612 MiB"));
    let json: Value = serde_json::from_str(&printed(&plimsoll(&daemon, "", &["ps", "--json"]))).unwrap();
    assert_eq!(json["cards"][0]["claimed"], 612 << 20);

    let again = failed(&plimsoll(&daemon, "", &["load", "alpha-2"]));
    assert_eq!(again.0, Some(1));
    assert!(again.1.contains("model is already running"), "{}", again.1);
    let unknown = failed(&plimsoll(&daemon, "", &["unload", "gamma"]));
    assert_eq!(unknown.0, Some(2), "{}", unknown.1);

    let logs = printed(&plimsoll(&daemon, "", &["logs", "alpha-2"]));
    assert!(!logs.is_empty() && logs.lines().all(|line| line.starts_with("[alpha-2] ")), "{logs}");
    printed(&plimsoll(&daemon, "", &["load", "beta"]));
    until("beta is ready", || list().contains("ready  200 MiB"));
    printed(&plimsoll(&daemon, "", &["unload", "alpha-2"]));
    until("alpha has left", || list().contains("alpha-2  unloaded"));
    printed(&plimsoll(&daemon, "", &["unload", "--all"]));
    until("all engines have left", || daemon.engines().is_empty());
}

#[test]
fn a_changed_configuration_is_read_again() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), text.replace("alpha", "omega")).unwrap();
    printed(&plimsoll(&daemon, "", &["reload"]));
    until("omega is listed", || printed(&plimsoll(&daemon, "", &["ps"])).contains("omega"));
    std::fs::write(daemon.config_file(), "[models").unwrap();
    let (status, error) = failed(&plimsoll(&daemon, "", &["reload"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("plimsoll.toml:1"), "{error}");
}

#[test]
fn a_wrong_key_and_a_missing_server_are_clear_errors() {
    let daemon =
        Setup::new().config("[serve]\napi-keys = ['secret']\n").model("alpha", "100MiB", "", "").start();
    assert!(printed(&plimsoll(&daemon, "secret", &["ps"])).contains("alpha"));
    let (status, error) = failed(&plimsoll(&daemon, "wrong", &["ps"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("the request contains no valid API key"), "{error}");
    let (status, error) = failed(&plimsoll(&daemon, "new\nline", &["ps"]));
    assert_eq!(status, Some(2), "{error}");
    let (status, error) = failed(&plimsoll(&daemon, "", &["ps", "--url", "http://127.0.0.1:1"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("is `plimsoll serve` running at this address?"), "{error}");
}
